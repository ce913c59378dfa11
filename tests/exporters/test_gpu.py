"""The GPU exporter against a scripted libnvidia-ml.so.1, through the real pynvml and the real command."""

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

SHIM_SOURCE = Path(__file__).parent / "nvml_shim.c"
LINE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
Page = dict[str, list[tuple[dict[str, str], float]]]


def read(text: str) -> Page:
    page: Page = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = LINE.match(line)
            assert match is not None, line
            page.setdefault(match[1], []).append((dict(LABEL.findall(match[2] or "")), float(match[3])))
    return page


def by_gpu(page: Page, name: str) -> dict[str, float]:
    return {labels["gpu"]: value for labels, value in page.get(name, [])}


def status_of(page: Page, gpu: str, field: str) -> str:
    rows = page["tidegate_exporter_gpu_field_readable"]
    (found,) = {r[0]["status"] for r in rows if r[0]["gpu"] == gpu and r[0]["field"] == field}
    return found


class Exporter:
    """`tidegate export gpu`, serving, and the file that scripts its NVML."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.scenario = folder / "scenario"
        self.say("ok")
        env = os.environ | {"LD_LIBRARY_PATH": str(library.parent), "NVML_SHIM_SCENARIO": str(self.scenario)}
        argv = [sys.executable, "-m", "tidegate", "export", "gpu", "--listen", "127.0.0.1:0", "--hostname", "node-0"]
        self.process = subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.port = int(self.process.stderr.readline().rsplit(" ", 1)[1])

    def say(self, scenario: str) -> None:
        self.scenario.write_text(scenario)

    def scrape(self, scenario: str) -> Page:
        self.say(scenario)
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            assert answer.status == 200
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            return read(answer.read().decode())


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here to build the scripted libnvidia-ml.so.1")
    path = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(path), str(SHIM_SOURCE)], check=True)
    return path


@pytest.fixture
def exporter(tmp_path: Path, library: Path) -> Iterator[Exporter]:
    found = Exporter(tmp_path, library)
    yield found
    found.process.kill()
    found.process.communicate()


def test_gpu_exporter_uses_dcgm_names_units_and_labels(exporter: Exporter) -> None:
    page = exporter.scrape("ok")
    assert page["tidegate_exporter_gpu_up"] == [({}, 1.0)]
    assert by_gpu(page, "DCGM_FI_DEV_POWER_USAGE") == {"0": 123.456, "1": 123.456}  # NVML gives milliwatts
    assert by_gpu(page, "DCGM_FI_DEV_FB_USED") == {"0": 35853, "1": 35853}  # NVML gives bytes
    assert by_gpu(page, "DCGM_FI_DEV_FB_FREE") == {"0": 45459, "1": 45459}
    assert by_gpu(page, "DCGM_FI_DEV_GPU_UTIL") == {"0": 97, "1": 0}  # a true zero is written
    assert by_gpu(page, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")["0"] == 5551899580
    assert page["DCGM_FI_DEV_SM_CLOCK"][0][0] == {
        "gpu": "0",
        "UUID": "GPU-0",
        "pci_bus_id": "00000000:00:00.0",
        "device": "nvidia4",
        "modelName": r"NVIDIA \"Shim\" 80GB",
        "Hostname": "node-0",
        "DCGM_FI_DRIVER_VERSION": "570.00",
    }


def test_gpu_exporter_reads_nvlink_totals_in_bytes_and_each_link(exporter: Exporter) -> None:
    page = exporter.scrape("ok")
    assert by_gpu(page, "DCGM_FI_DEV_NVLINK_COUNT_TX_BYTES") == {"0": 8000 * 1024, "1": 8000 * 1024}  # NVML gives KiB
    links = page["tidegate_exporter_nvlink_link_rx_bytes_total"]
    assert [(row["gpu"], row["nvlink"], value) for row, value in links] == [
        ("0", "0", 1024),
        ("0", "1", 2048),
        ("1", "0", 1024),
        ("1", "1", 2048),
    ]


def test_gpu_exporter_leaves_a_failed_field_out_and_names_it(exporter: Exporter) -> None:
    page = exporter.scrape("ok")
    assert "DCGM_FI_DEV_PCIE_REPLAY_COUNTER" not in page
    assert status_of(page, "0", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER") == "not_supported"
    # One entry of a field-value call fails while the call succeeds.
    assert list(by_gpu(page, "tidegate_exporter_nvlink_raw_tx_bytes_total")) == ["0"]
    assert status_of(page, "1", "tidegate_exporter_nvlink_raw_tx_bytes_total") == "not_supported"
    assert status_of(page, "0", "tidegate_exporter_nvlink_raw_tx_bytes_total") == "ok"


def test_gpu_exporter_keeps_the_other_gpu_when_one_is_lost_in_mid_scrape(exporter: Exporter) -> None:
    exporter.scrape("ok")
    page = exporter.scrape("lost")
    assert page["tidegate_exporter_gpu_up"] == [({}, 1.0)]
    assert by_gpu(page, "DCGM_FI_DEV_POWER_USAGE") == {"0": 123.456, "1": 123.456}  # read before it died
    assert by_gpu(page, "DCGM_FI_DEV_GPU_UTIL") == {"0": 97}
    assert by_gpu(page, "DCGM_FI_DEV_NVLINK_COUNT_TX_BYTES") == {"0": 8000 * 1024}
    assert status_of(page, "1", "DCGM_FI_DEV_GPU_UTIL") == "gpu_is_lost"
    assert status_of(page, "1", "DCGM_FI_DEV_NVLINK_COUNT_TX_BYTES") == "gpu_is_lost"


def test_gpu_exporter_drops_nvml_blanks(exporter: Exporter) -> None:
    page = exporter.scrape("blank")
    assert "DCGM_FI_DEV_POWER_USAGE" not in page
    assert status_of(page, "0", "DCGM_FI_DEV_POWER_USAGE") == "not_available"


def test_gpu_exporter_gives_the_last_xid_where_events_can_be_had(exporter: Exporter) -> None:
    assert by_gpu(exporter.scrape("ok"), "DCGM_FI_DEV_XID_ERRORS") == {"0": 0}
    assert by_gpu(exporter.scrape("xid"), "DCGM_FI_DEV_XID_ERRORS") == {"0": 79}
    page = exporter.scrape("ok")
    assert by_gpu(page, "DCGM_FI_DEV_XID_ERRORS") == {"0": 79}
    assert status_of(page, "1", "DCGM_FI_DEV_XID_ERRORS") == "not_supported"


def test_gpu_exporter_says_why_there_is_no_driver_and_recovers(exporter: Exporter) -> None:
    assert exporter.scrape("gone") == {"tidegate_exporter_gpu_up": [({"reason": "uninitialized"}, 0.0)]}
    assert exporter.scrape("no_driver") == {"tidegate_exporter_gpu_up": [({"reason": "driver_not_loaded"}, 0.0)]}
    assert by_gpu(exporter.scrape("ok"), "DCGM_FI_DEV_GPU_UTIL") == {"0": 97, "1": 0}


def test_export_gpu_stops_with_exit_code_0_on_sigterm(exporter: Exporter) -> None:
    exporter.process.send_signal(signal.SIGTERM)
    assert exporter.process.wait(timeout=10) == 0


def test_export_gpu_once_says_library_not_found_where_there_is_none(tmp_path: Path) -> None:
    # An unloadable file in front of any real driver of this machine.
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    done = subprocess.run(
        [sys.executable, "-m", "tidegate", "export", "gpu", "--once"],
        env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert read(done.stdout) == {"tidegate_exporter_gpu_up": [({"reason": "library_not_found"}, 0.0)]}
