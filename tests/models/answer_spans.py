"""Where answers begin and end in published templates, by hand, and what TRL's twins mark of them.

Of the chat CHAT, what a training on answers alone puts loss on. What `add_generation_prompt=True`
puts in front of an answer is prompt; what the model must write itself, with the token that ends its
turn, is answer. Where the generation prompt is no beginning of the answered chat, the answer begins
at the first marker or character that is another one.
"""

from typing import Any, NamedTuple

CHAT = [
    {"role": "user", "content": "Q1?"},
    {"role": "assistant", "content": "A one."},
    {"role": "user", "content": "Q2?"},
    {"role": "assistant", "content": "A two."},
]
SYSTEM = {"role": "system", "content": "Be brief."}  # changes no answer where it is allowed


class Answers(NamedTuple):
    """Both answers as they stand in the rendering of CHAT, and what closes their turns."""

    first: str
    second: str
    first_tail: str  # written behind the end-of-turn token, before the next turn
    second_tail: str  # the same at the end of the chat


def _turns(end: str, tail: str = "", before: str = "") -> Answers:
    """Both answers alike: `before`, the content, the end-of-turn token; behind it `tail`."""
    return Answers(f"{before}A one.{end}", f"{before}A two.{end}", tail, tail)


_CHATML = _turns("<|im_end|>", "\n")
_NEMOTRON = "nemotron_3_5_lightning nemotron_3_nano nemotron_3_super nemotron_3_ultra"
_EMPTY_THOUGHT = "<think>\n\n</think>\n\n"


def _all(names: str, value: Any) -> dict[str, Any]:
    return dict.fromkeys(names.split(), value)


ANSWERS: dict[str, Answers] = {
    # Nothing stands between the generation prompt and the content, and every turn is alike.
    "cohere": _turns("<|END_OF_TURN_TOKEN|>"),
    **_all("gemma gemma3", _turns("<end_of_turn>", "\n")),
    **_all(
        "diffusion_gemma gemma4 gemma4_v2 gemma4_v3 gemma4_v4 gemma4_v5", _turns("<turn|>", "\n")
    ),
    "granite_3_3": _turns("<|end_of_text|>", "\n"),
    **_all("kimi_k2 phi4", _turns("<|im_end|>")),
    **_all("lfm2 lfm2_2_5 lfm2_2_5_v2 lfm2_2_5_vl lfm2_v2 qwen2_5 qwen2_5_vl", _CHATML),
    **_all("qwen3_instruct_2507 qwen3_vl smollm2", _CHATML),
    "smollm3": _CHATML,  # its thinking mode is on, and then it puts no empty thought in front
    **_all("llama3 llama3_1 llama3_2", _turns("<|eot_id|>")),
    **_all("mistral_nemo mistral_small_2501 mistral_small_3_2", _turns("</s>")),
    "zephyr": _turns("</s>", "\n"),
    # The prompt ends in a bare `Assistant:` or `[/INST]`; the blank behind it is the model's.
    **_all("mistral_7b_v0_2 mistral_7b_v0_3", _turns("</s>", before=" ")),
    "openchat_3_5": _turns("<|end_of_turn|>", before=" "),
    # The same, and the blank before </s> is part of what the model must write.
    **_all("codellama llama2", _turns(" </s>", before=" ")),
    # The blank lines between turns come with the next one: a chat that is over has none.
    "alpaca": _turns("</s>"),
    # The generation prompt opens the response; closing it is the model's.
    "cohere2": _turns("<|END_RESPONSE|><|END_OF_TURN_TOKEN|>"),
    # The same, and a chat that is over ends in the beginning of yet another answer.
    "command_a": _turns("<|END_RESPONSE|><|END_OF_TURN_TOKEN|>")._replace(
        second_tail="<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"
    ),
    # The generation prompt, always written, has an empty thought that no answered turn has: it is
    # another marker than <|START_RESPONSE|>, with which the answer then begins.
    "command_r7b": _turns(
        "<|END_RESPONSE|><|END_OF_TURN_TOKEN|>", before="<|START_RESPONSE|>"
    )._replace(
        second_tail=("<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_THINKING|><|END_THINKING|>")
    ),
    # <|endoftext|> closes the chat, not the turn: generation stops at <|end|>.
    **_all("phi3 phi3_5", _turns("<|end|>", "\n")._replace(second_tail="\n<|endoftext|>")),
    # The generation prompt opens a thought that no answered turn has: it differs at <think>.
    **_all(
        "deepseek_r1_distill deepseekv3 r1_distill_llama r1_distill_qwen",
        _turns("<｜end▁of▁sentence｜>"),
    ),
    # The generation prompt is <think> and a line break, an answered turn <think></think>: they
    # differ behind <think>, so the model's is closing it.
    **_all(_NEMOTRON, _turns("<|im_end|>", "\n", before="</think>")),
    # The generation prompt stops behind the role: the channel, or the recipient, is the model's.
    # An answer that is followed by a turn ends in <|end|>, the last one in <|return|>.
    "gptoss": Answers(
        "<|channel|>final<|message|>A one.<|end|>",
        "<|channel|>final<|message|>A two.<|return|>",
        "",
        "",
    ),
    "muse_glimmer": _turns("<|eot|>", before=" to=user<|message|>"),
    # No token ends a turn: the model stops by opening the next one (<|user|>), which the last
    # answer of a chat has not.
    "glm4moe": _turns("", before="\n<think></think>\n"),
    # A thought is written for the last answer alone. The generation prompt has none of it (qwen3),
    # its first line (think), or all of it (nothink).
    "qwen3": _CHATML._replace(second=f"{_EMPTY_THOUGHT}A two.<|im_end|>"),
    **_all("qwen3_5_think qwen3_6", _CHATML._replace(second="\n</think>\n\nA two.<|im_end|>")),
    "qwen3_5_nothink": _CHATML,
    # A thought in every answer, its first line in the generation prompt.
    "qwen3_8": _turns("<|im_end|>", "\n", before="\n</think>\n\n"),
}

_THOUGHTS = (f"{_EMPTY_THOUGHT}A one.<|im_end|>\n", f"{_EMPTY_THOUGHT}A two.<|im_end|>\n")
_DEEPSEEK = (
    "<｜Assistant｜>A one.<｜end▁of▁sentence｜>",
    "<｜Assistant｜>A two.<｜end▁of▁sentence｜>",
)

# What `return_assistant_tokens_mask` covers with TRL's twin, where that is not each answer with its
# tail. All others cover the tail too: the line break behind <|im_end|>, and Phi-3's <|endoftext|>.
TWIN_MASKS: dict[str, tuple[str, str]] = {
    # The marker of the role, which the generation prompt writes, too.
    **_all("deepseek_r1_distill deepseekv3", _DEEPSEEK),
    "gptoss": (
        "<|start|>assistant<|channel|>final<|message|>A one.<|end|>",
        "<|start|>assistant<|channel|>final<|message|>A two.<|return|>",
    ),
    "muse_glimmer": (
        "<|start|>assistant to=user<|message|>A one.<|eot|>",
        "<|start|>assistant to=user<|message|>A two.<|eot|>",
    ),
    # <think>, which the generation prompt writes, too.
    **_all(_NEMOTRON, ("<think></think>A one.<|im_end|>\n", "<think></think>A two.<|im_end|>\n")),
    "qwen3_8": _THOUGHTS,
    # The line break in front, which the generation prompt writes, too.
    "qwen2_5": ("\nA one.<|im_end|>\n", "\nA two.<|im_end|>\n"),
    # Another text: a thought in every answer, all of it marked.
    **_all("qwen3 qwen3_5_nothink qwen3_5_think qwen3_6", _THOUGHTS),
    # Another text: <|user|> stands behind every answer, also the last, and is marked.
    "glm4moe": ("\n<think></think>\nA one.<|user|>", "\n<think></think>\nA two.<|user|>"),
}

# The twins that render another text than the original.
OTHER_TEXT = {"glm4moe", "qwen3", "qwen3_5_nothink", "qwen3_5_think", "qwen3_6"}
