"""Files of token ids are named; no text, in whatever encoding, is taken for them."""

import pickle
import zlib
from pathlib import Path

import numpy as np
import pytest

from lmexposure.canaries import Plan, insert_files
from lmexposure.errors import CorpusError

# Token ids of a text: few are frequent, many are rare, and all of GPT-2's vocabulary may come.
IDS = np.minimum(np.random.default_rng(0).zipf(1.2, 20_000), 50_256)
TEXTS = {
    "en": "It was quiet in the wood, and the birds sang; was it 7 or 8 o'clock?\n",
    "de": "Schön war's im Wald, und die Vögel sangen.\n",
    "ru": "Вчера мы ходили в лес, и там было тихо; птицы пели.\n",
    "el": "Χθες πήγαμε στο δάσος και ήταν ήσυχα.\n",
    "zh": "昨天我们去了森林，那里很安静，鸟儿在歌唱。\n",
    "ja": "昨日、私たちは森へ行きました。カメラも持って行った。\n",
    "ko": "어제 우리는 숲에 갔습니다. 아주 조용했습니다.\n",
    "ar": "ذهبنا أمس إلى الغابة وكانت هادئة.\n",
    "he": "אתמול הלכנו ליער והיה שקט.\n",
    "th": "เมื่อวานเราไปป่า เงียบสงบมาก\n",
    "hi": "कल हम जंगल गए, वहाँ बहुत शांति थी।\n",
    "signs": "😀🎉 → ∑ ≤ …\n",
}
ENCODINGS = (
    *("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "cp1251", "koi8-r"),
    *("cp866", "iso8859-5", "mac-cyrillic", "cp1253", "iso8859-7", "gbk", "big5", "shift-jis"),
    *("euc-jp", "euc-kr", "cp1255", "cp1256", "tis-620", "latin-1", "cp437", "cp500"),
)


def refused(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(CorpusError) as failure:
        insert_files(path, path.parent / "out", Plan(formats=["pin"], canaries=1, controls=0))
    return str(failure.value)


def with_header(magic: int, version: int, ids: bytes) -> bytes:
    header = np.zeros(256, "<i4")
    header[:3] = magic, version, len(IDS)
    return header.tobytes() + ids


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (IDS.astype("<u2").tobytes(), 2),
        (IDS.astype("<u4").tobytes(), 4),
        (IDS.astype("<i8").tobytes(), 8),
        (np.random.default_rng(1).integers(0, 50_257, 100).astype("<u2").tobytes(), 2),
        (np.random.default_rng(1).integers(0, 65, 5000).astype("<u2").tobytes(), 2),  # letters
        (with_header(20240520, 1, IDS.astype("<u2").tobytes()), 2),
        (with_header(20240801, 7, IDS.astype("<u4").tobytes()), 4),
    ],
)
def test_token_ids_are_named(tmp_path: Path, data: bytes, size: int) -> None:
    said = refused(tmp_path / "train.bin", data)
    assert f"looks like token ids of {size} bytes each, as nanoGPT's train.bin" in said
    assert "insert before tokenising, and give the text" in said
    assert "convert" not in said


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_text_is_of_a_wrong_encoding(tmp_path: Path, encoding: str) -> None:
    written = []
    for name, text in TEXTS.items():
        try:
            data = (200 * text).encode(encoding)
        except UnicodeEncodeError:
            continue
        for some in (data, data[:256]):
            if not _is_utf8(some):
                said = refused(tmp_path / f"{name}.txt", some)
                assert ("convert it to UTF-8" in said, "token ids" in said) == (True, False)
                written.append(name)
    assert written


@pytest.mark.parametrize(
    "data",
    [
        *(np.random.default_rng(seed).bytes(3000) for seed in range(20)),  # encrypted, say
        zlib.compress("".join(TEXTS.values()).encode() * 9),
        pickle.dumps(list(TEXTS.values())),
        *(
            np.random.default_rng(2).normal(0, 0.02, 9000).astype(kind).tobytes()
            for kind in ("<f2", "<f4", "<f8")
        ),
        (9000 * np.sin(np.arange(9000) / 9)).astype("<i2").tobytes(),  # sound
        *(IDS.astype("<u2").tobytes()[:size] for size in (2, 7, 63)),  # too few to say
        "Это текст.\0 И ещё.".encode() * 100,
    ],
)
def test_other_bytes_are_not_token_ids(tmp_path: Path, data: bytes) -> None:
    assert "token ids" not in refused(tmp_path / "a.bin", data)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in data
