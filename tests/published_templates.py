"""Published chat templates, tokenizers that know their markers, and tiny models to go with them.

The texts and where they come from: `tests/templates/README.md`.
"""

import functools
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

FOLDER = Path(__file__).parent / "templates"


def _texts(folder: str) -> dict[str, str]:
    return {p.stem: p.read_bytes().decode() for p in sorted((FOLDER / folder).glob("*.jinja"))}


ORIGINALS = _texts("originals")  # as models are published; TRL's copies
TWINS = _texts("twins")  # TRL's marked versions of them, by the original's name
OTHERS = _texts("others")  # families that TRL has no copy of
PUBLISHED = ORIGINALS | OTHERS

# What a chat of strings meets; test_published_templates.py holds each set to be all there is.
REFUSE_STRINGS = {"llava_next"}
DROP_STRINGS = {"idefics3", "smolvlm"}
REFUSE_SYSTEM = {"gemma"}
DROP_SYSTEM = {"mistral_7b_v0_3", "mistral_nemo"}  # it is put into a last user turn alone
REFUSE_TWO_USERS = {
    *("codellama", "cohere", "cohere2", "gemma", "gemma3", "llama2", "mistral_7b_v0_2"),
    *("mistral_7b_v0_3", "mistral_nemo", "mistral_small_3_2"),
}


class Family(NamedTuple):
    """What tokenizer_config.json of a family says."""

    bos: str | None
    eos: str
    special: str = ""  # tokens that decoding skips, between blanks
    plain: str = ""  # tokens of their own that decoding keeps, between blanks


_THINK = "<think> </think>"
_TOOL_CALL = "<tool_call> </tool_call>"
_VISION = "<|vision_start|> <|vision_end|> <|image_pad|> <|video_pad|>"
_DEEPSEEK_TOOLS = (
    "<｜tool▁calls▁begin｜> <｜tool▁calls▁end｜> <｜tool▁call▁begin｜> <｜tool▁call▁end｜> "
    "<｜tool▁outputs▁begin｜> <｜tool▁outputs▁end｜> <｜tool▁output▁begin｜> <｜tool▁output▁end｜> "
    "<｜tool▁sep｜>"
)
_COHERE = "<|START_OF_TURN_TOKEN|> <|USER_TOKEN|> <|CHATBOT_TOKEN|> <|SYSTEM_TOKEN|>"
_MISTRAL_TOOLS = "[TOOL_CALLS] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS]"

# Where eos does not end a turn (Gemma, Phi-3, GLM-4, gpt-oss), so it is in the published files:
# the turn's end is told to generation alone. Those marked (?) are not known, but fit the template.
FAMILIES = {
    "cohere": Family(
        "<BOS_TOKEN>",
        "<|END_OF_TURN_TOKEN|>",
        f"{_COHERE} <|START_RESPONSE|> <|END_RESPONSE|> <|START_THINKING|> <|END_THINKING|> "
        "<|START_ACTION|> <|END_ACTION|> <|START_TOOL_RESULT|> <|END_TOOL_RESULT|>",
    ),
    "deepseek": Family(
        "<｜begin▁of▁sentence｜>",
        "<｜end▁of▁sentence｜>",
        "<｜User｜> <｜Assistant｜>",
        f"{_THINK} {_DEEPSEEK_TOOLS}",
    ),
    "gemma": Family("<bos>", "<eos>", "<start_of_turn> <end_of_turn> <start_of_image>"),
    "gemma4": Family(  # (?)
        "<bos>",
        "<eos>",
        "<|turn> <turn|> <|channel> <channel|> <|think|> <|tool> <tool|> <|tool_call> <tool_call|> "
        "<|tool_response> <tool_response|> <|image|> <|audio|> <|video|>",
    ),
    "glm4": Family(
        None,
        "<|endoftext|>",
        "[gMASK] <sop> <|system|> <|user|> <|assistant|> <|observation|>",
        f"{_THINK} {_TOOL_CALL} <tool_response> </tool_response> <arg_key> </arg_key> "
        "<arg_value> </arg_value>",
    ),
    "gptoss": Family(
        "<|startoftext|>",
        "<|return|>",
        "<|start|> <|message|> <|channel|> <|end|> <|call|> <|constrain|> <|endoftext|>",
    ),
    "granite": Family(
        "<|end_of_text|>",
        "<|end_of_text|>",
        "<|start_of_role|> <|end_of_role|> <|tool_call|> <|start_of_cite|> <|end_of_cite|>",
    ),
    "idefics3": Family(  # (?)
        "<|begin_of_text|>", "<end_of_utterance>", "<image>"
    ),
    "kimi": Family(
        "[BOS]",
        "<|im_end|>",
        "<|im_user|> <|im_assistant|> <|im_system|> <|im_middle|>",
        "<|media_start|> <|media_content|> <|media_pad|> <|media_end|> <|tool_call_begin|> "
        "<|tool_call_argument_begin|> <|tool_call_end|> <|tool_calls_section_begin|> "
        "<|tool_calls_section_end|>",
    ),
    "lfm2": Family(
        "<|startoftext|>",
        "<|im_end|>",
        "<|im_start|> <|tool_list_start|> <|tool_list_end|> <|tool_call_start|> <|tool_call_end|> "
        "<|tool_response_start|> <|tool_response_end|> <image>",
        _THINK,
    ),
    "llama2": Family("<s>", "</s>"),
    "llama3": Family(
        "<|begin_of_text|>",
        "<|eot_id|>",
        "<|start_header_id|> <|end_header_id|> <|eom_id|> <|python_tag|> <|end_of_text|>",
    ),
    "llava": Family("<s>", "</s>", "<image>"),
    "mistral": Family(
        "<s>",
        "</s>",
        f"[INST] [/INST] {_MISTRAL_TOOLS} [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [IMG] [ARGS] [CALL_ID] "
        "[TOOL_CONTENT]",
    ),
    "muse": Family(  # (?)
        "<|begin_of_text|>", "<|eot|>", "<|start|> <|message|> <|eom|> <|patch|> <|video|>"
    ),
    "nemotron": Family(
        "<s>",
        "<|im_end|>",
        "<|im_start|>",
        f"{_THINK} {_TOOL_CALL} <tool_response> </tool_response>",
    ),
    "openchat": Family("<s>", "<|end_of_turn|>"),
    "phi3": Family("<s>", "<|endoftext|>", "<|system|> <|user|> <|assistant|> <|end|>"),
    "phi4": Family("<|endoftext|>", "<|im_end|>", "<|im_start|> <|im_sep|>"),
    "qwen": Family(
        None,
        "<|im_end|>",
        f"<|endoftext|> <|im_start|> {_VISION}",
        f"{_THINK} {_TOOL_CALL} <tool_response> </tool_response>",
    ),
    "smollm2": Family("<|im_start|>", "<|im_end|>", "<|endoftext|>"),
    "smollm3": Family(None, "<|im_end|>", "<|im_start|>", _THINK),
    "smolvlm": Family("<|im_start|>", "<end_of_utterance>", "<image>"),
}

# By how the template's name begins; the longest beginning decides.
_PREFIXES = {
    "alpaca": "llama2",
    "codellama": "llama2",
    "command": "cohere",
    "diffusion_gemma": "gemma4",
    "llava": "llava",
    "mistral_7b_v0_2": "llama2",
    "r1_distill": "deepseek",
    "zephyr": "llama2",
} | {family: family for family in FAMILIES}


def family_of(name: str) -> Family:
    """What the tokenizer of this template's family says."""
    prefix = max((p for p in _PREFIXES if name.startswith(p)), key=len)
    return FAMILIES[_PREFIXES[prefix]]


_WORDS = (
    "My PIN is 0042. The number of my card is 281 265 017, and it ends in March. What is it? "
    "You are a helpful assistant. Today Date: user system assistant model thought final analysis "
    "I am sorry, I can not tell; please ask again.\n\n"
)


@functools.cache
def _byte_level() -> str:
    """A small byte-level BPE with digits one by one, as JSON: 400 entries."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([_WORDS] * 10, trainer)
    return str(tokenizer.to_str())


def tokenizer_for(name: str, template: str | None = None) -> Any:
    """A fast byte-level tokenizer with this template and its family's tokens.

    `template` stands in for the published text, e.g. TWINS[name].
    """
    family = family_of(name)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_byte_level()),
        bos_token=family.bos,
        eos_token=family.eos,
        pad_token=family.eos,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.add_tokens(
        [AddedToken(token, special=True, normalized=False) for token in family.special.split()]
        + [AddedToken(token, special=False, normalized=False) for token in family.plain.split()]
    )
    tokenizer.chat_template = PUBLISHED[name] if template is None else template
    return tokenizer


def tiny_model_for(tokenizer: Any) -> Any:
    """A random Llama for this tokenizer, the same for every tokenizer of its size."""
    return _tiny_llama(len(tokenizer))


@functools.cache
def _tiny_llama(vocabulary: int) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=vocabulary,
                hidden_size=32,
                intermediate_size=64,
                num_hidden_layers=2,
                num_attention_heads=2,
                max_position_embeddings=4096,
                initializer_range=0.2,
                bos_token_id=None,
                eos_token_id=None,
            )
        )
    return model.eval()
