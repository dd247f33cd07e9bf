"""Models as tasks of Ray: one start of it, on which workers are killed, refuse, and wait."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import fake_models
import pytest
from fake_models import FakeDirectory, Fate, fake_task, fake_worker, write_plan

from lmexposure.errors import FileError, ResultError
from lmexposure.sweeps import driver, ray_tasks

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.usefixtures("fake_models"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def fake_workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(ray_tasks, "train_in_worker", fake_worker)
    ray.cloudpickle.register_pickle_by_value(fake_models)
    yield
    ray.cloudpickle.unregister_pickle_by_value(fake_models)


def whole(out: Path) -> dict[int, str]:
    homes = sorted((out / "models").glob("*"))
    return {int(home.name): (home / "scores").read_text() for home in homes}


@pytest.mark.slow
@pytest.mark.usefixtures("fake_workers")
def test_tasks_of_ray(tmp_path: Path) -> None:
    """One Ray for all, as its start takes as long as the rest: it is used and left as it is."""
    slow = {0: Fate(seconds=0.02), 1: Fate(seconds=0.02)}
    fates = {2: Fate(killed=1), 3: Fate(diverges=True)}
    out = write_plan(tmp_path / "killed", 5, {**slow, **fates})
    seen: list[tuple[str, int, int, str]] = []
    directory = FakeDirectory.open(out)
    with ray_tasks.on_ray(directory, workers=2, address=None) as train:  # type: ignore[arg-type]
        ended = dict(train(range(5)))
        assert ended.keys() == set(range(5))
        assert ended[3].reason == "its loss is nan"  # type: ignore[union-attr]
        assert whole(out) == {n: f"{n}, 1 thread" for n in (0, 1, 2, 4)}
        place = _out_of_reach()
        _errors(tmp_path)
        _busy(tmp_path)
        lost = write_plan(tmp_path / "lost", 2, {1: Fate(killed=9)})
        with pytest.raises(
            ResultError, match="the worker of model 1 was lost 4 times, and may want more memory"
        ):
            driver.train_models(lost, workers=2, progress=lambda *told: seen.append(told))
    assert not ray.is_initialized()
    assert not place.exists()


def _out_of_reach() -> Path:
    """Every process of Ray listens on the loopback alone, and its files are the user's alone."""
    psutil = pytest.importorskip("psutil")
    me = psutil.Process()
    listening = {
        (process.name(), connection.laddr.ip)
        for process in (me, *me.children(recursive=True))
        for connection in process.net_connections()
        if connection.status == psutil.CONN_LISTEN
    }
    names = {name for name, _ in listening}
    assert any("gcs_server" in name for name in names)
    assert any("raylet" in name for name in names)
    assert {place.removeprefix("::ffff:") for _, place in listening} == {"127.0.0.1"}
    session = Path(ray._private.worker._global_node.get_session_dir_path())
    place = session.parents[1]
    assert place.name.startswith("lmexposure-")
    assert place.stat().st_mode & 0o777 == 0o700
    return place


def _errors(tmp_path: Path) -> None:
    full = write_plan(tmp_path / "full", 2, {0: Fate(disk_full=True)})
    with pytest.raises(FileError, match="the disk is full"):
        driver.train_models(full, workers=2)
    bug = write_plan(tmp_path / "bug", 2, {0: Fate(bug=True)})
    with pytest.raises(KeyError, match="a bug"):
        driver.train_models(bug, workers=2)
    gpu = write_plan(tmp_path / "gpu", 2, device="cuda")
    with pytest.raises(ResultError, match="device='cuda', and Ray sees no GPU; choose workers=1"):
        driver.train_models(gpu, workers=2)


def _busy(tmp_path: Path) -> None:
    out = write_plan(tmp_path / "busy", 2, {1: Fate(seconds=0.01)})
    other = threading.Thread(target=fake_task, args=(FakeDirectory.open(out), 1))
    other.start()
    while not (out / "work" / "001").exists():
        time.sleep(0.001)
    driver.train_models(out, workers=2)
    other.join()
    assert whole(out).keys() == {0, 1}


@pytest.mark.slow
def test_a_cluster_out_of_reach_is_said_in_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = write_plan(tmp_path, 2)
    begun = time.monotonic()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(ResultError, match=f"cluster at {address} is out of reach: .*refused"):
            driver.train_models(out, address=address)
        closed.listen()
        monkeypatch.setattr(ray_tasks, "_JOIN_SECONDS", 0.2)
        with pytest.raises(ResultError, match="did not answer as Ray does within 0 s; name a head"):
            driver.train_models(out, address=address)
    assert time.monotonic() - begun < 5


@pytest.mark.slow
def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match=r"cluster at nonsense is out of reach: .*nonsense"):
        driver.train_models(write_plan(tmp_path, 2), address="nonsense")


def test_a_worker_sees_whether_it_has_the_driver_s_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "1")  # as a worker sets it, and this process had it not
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    out = write_plan(tmp_path / "here", 2)
    refused = ray_tasks.train_in_worker(str(tmp_path / "elsewhere"), "0" * 64, 0)
    assert isinstance(refused, ResultError)
    assert "has no plan of a sweep in" in str(refused)
    refused = ray_tasks.train_in_worker(str(out), "0" * 64, 0)
    assert isinstance(refused, ResultError)
    assert "has another plan in" in str(refused)
    assert "a disk that all machines of the cluster share" in str(refused)


@pytest.mark.parametrize(
    ("device", "gpus", "workers", "share"),
    [
        ("cpu", 4.0, 8, 0.0),
        ("auto", 0.0, 2, 0.0),
        ("auto", 4.0, 8, 0.5),
        ("cuda", 4.0, None, 1.0),
        ("cuda", 4.0, 2, 1.0),
        ("mps", 0.0, 2, 0.0),
    ],
)
def test_a_task_gets_a_share_of_a_gpu(
    device: str, gpus: float, workers: int | None, share: float
) -> None:
    assert ray_tasks.gpu_share(device, gpus, workers) == share
