"""Messages to callers when their plans end: signed as Standard Webhooks has it, to public addresses only."""
