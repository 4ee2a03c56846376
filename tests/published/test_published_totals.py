"""Totals that the publishers state, to the last parameter where they do.

Sources: the parameter count that the Hub shows for the repository's safetensors index (`hub`), the paper, or the model
card. Buffers that a checkpoint stores beside the parameters are subtracted where noted.
"""

import pytest

from cost_models.hf_config import model
from cost_models.parameters import active_parameters, total_parameters

EXACT = {
    "llama-2-7b": 6_738_415_616,  # hub meta-llama/Llama-2-7b-hf
    "llama-2-13b": 13_015_864_320,  # hub meta-llama/Llama-2-13b-hf
    "llama-2-70b": 68_976_648_192,  # hub meta-llama/Llama-2-70b-hf
    "llama-3-8b": 8_030_261_248,  # hub meta-llama/Meta-Llama-3-8B
    "llama-3.1-70b": 70_553_706_496,  # hub meta-llama/Llama-3.1-70B
    "llama-3.1-405b": 405_853_388_800,  # hub meta-llama/Llama-3.1-405B
    "llama-3.2-1b": 1_235_814_400,  # hub meta-llama/Llama-3.2-1B
    "mistral-7b": 7_241_732_096,  # hub mistralai/Mistral-7B-v0.1
    "mistral-nemo": 12_247_782_400,  # hub mistralai/Mistral-Nemo-Base-2407
    "mixtral-8x7b": 46_702_792_704,  # hub mistralai/Mixtral-8x7B-v0.1
    "mixtral-8x22b": 140_620_634_112,  # hub mistralai/Mixtral-8x22B-v0.1
    "qwen-7b": 7_721_324_544,  # hub Qwen/Qwen-7B
    "qwen-14b": 14_167_290_880,  # hub Qwen/Qwen-14B
    "qwen2.5-7b": 7_615_616_512,  # hub Qwen/Qwen2.5-7B
    "qwen3-30b-a3b": 30_532_122_624,  # hub Qwen/Qwen3-30B-A3B
    "gemma-2-9b": 9_241_705_984,  # hub google/gemma-2-9b
    "gemma-3-1b": 999_885_952,  # hub google/gemma-3-1b-pt
    "baichuan-7b": 7_000_559_616,  # hub baichuan-inc/Baichuan-7B
    "baichuan-13b": 13_264_901_120,  # model card of baichuan-inc/Baichuan-13B-Base
    "baichuan2-7b": 7_505_973_248,  # hub baichuan-inc/Baichuan2-7B-Base
    "baichuan2-13b": 13_896_668_160,  # hub baichuan-inc/Baichuan2-13B-Base
    "chatglm-6b": 6_173_286_400,  # hub THUDM/chatglm-6b
    "chatglm2-6b": 6_243_584_000,  # hub THUDM/chatglm2-6b
    "chatglm3-6b": 6_243_584_000,  # hub THUDM/chatglm3-6b
    "glm-4-9b": 9_399_951_360,  # hub THUDM/glm-4-9b
    "internlm-7b": 7_321_948_160,  # hub internlm/internlm-7b
    "internlm2-1.8b": 1_889_110_016,  # hub internlm/internlm2-1_8b
    "internlm2-7b": 7_737_708_544,  # hub internlm/internlm2-7b
    "internlm2-20b": 19_861_149_696,  # hub internlm/internlm2-20b
    "yi-34b": 34_388_917_248,  # hub 01-ai/Yi-34B
    "deepseek-moe-16b": 16_375_728_128,  # hub deepseek-ai/deepseek-moe-16b-base
    "deepseek-v2-lite": 15_706_484_224,  # hub deepseek-ai/DeepSeek-V2-Lite
    "deepseek-v2": 235_741_434_880,  # hub deepseek-ai/DeepSeek-V2
    "falcon-180b": 179_522_565_120 - 65_024 * 14_848,  # hub tiiuae/falcon-180B, whose files store the tied head twice
    "gpt2-xl": 1_557_611_200,  # hub openai-community/gpt2-xl
    "gpt-oss-20b": 20_914_757_184,  # arXiv:2508.10925 table 1: 20.91B
    "gpt-oss-120b": 116_829_156_672,  # arXiv:2508.10925 table 1: 116.83B
}

ROUNDED = {
    # name: (total, active) in 10^9, and the place
    "gpt3-175b": (174.6, 174.6),  # arXiv:2005.14165 table D.1: 174,600 M
    "bloom-176b": (176.247, 176.247),  # arXiv:2211.05100 table 3: 176,247 M
    "llama-65b": (65.2, 65.2),  # arXiv:2302.13971 table 2
    "mixtral-8x7b": (46.7, 12.9),  # mistral.ai/news/mixtral-of-experts
    "qwen2-57b-a14b": (57.4, 14.2),  # arXiv:2407.10671 table 1: 57B, 14B activated
    "qwen3-235b-a22b": (235.0, 22.0),  # arXiv:2505.09388
    "llama-4-scout-17b-16e": (108.0, 17.0),  # model card: 109B with the vision tower
    "llama-4-maverick-17b-128e": (401.0, 17.0),  # model card: 400B
    "deepseek-v3": (671.0, 37.0),  # arXiv:2412.19437
    "deepseek-v2": (236.0, 21.0),  # arXiv:2405.04434
    "qwen1.5-moe-a2.7b": (14.3, 2.7),  # model card
}


@pytest.mark.parametrize("name", EXACT)
def test_total_is_the_published_one(name: str) -> None:
    assert total_parameters(model(name)) == EXACT[name]


@pytest.mark.parametrize("name", ROUNDED)
def test_total_and_active_are_the_published_ones_rounded(name: str) -> None:
    total, active = ROUNDED[name]
    assert total_parameters(model(name)) / 1e9 == pytest.approx(total, rel=0.005)
    assert active_parameters(model(name)) / 1e9 == pytest.approx(active, rel=0.05)
