"""What a node is and how fast it really is: read, measured by the job's own processes, written as a pool of a request.

node         what the node has, read
rates        matmul rate by dtype and shape, memory and host-device bandwidth, measured
collectives  all-reduce, all-gather, reduce-scatter and all-to-all, measured
fit          time = steps x alpha + bytes / bandwidth, with its error
worker       one process of the measurement, under torchrun
pool         the figures as a pool that a request can name
"""
