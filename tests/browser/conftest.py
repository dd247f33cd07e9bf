"""A real browser for the pages; where the machine has none, these tests are skipped and say so."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Dialog, Page, sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}


@dataclass
class Opened:
    """A page, and all that it did."""

    page: Page
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def dismiss(self, dialog: Dialog) -> None:
        self.messages.append(f"dialog {dialog.message}")
        dialog.dismiss()


Open = Callable[..., Opened]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser on this machine: none of {', '.join(BROWSERS)} is on the path")
    quiet = ["background-networking", "component-update", "gpu"]
    arguments = ["--no-first-run", *(f"--disable-{name}" for name in quiet)]
    if os.geteuid() == 0:  # the sandbox refuses to run as root
        arguments.append("--no-sandbox")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=arguments)
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Open an HTML document as a person does: a file on the disk."""
    contexts = []

    def opened(
        html: str, size: str = "desktop", scheme: str = "light", javascript: bool = True
    ) -> Opened:
        file = tmp_path / "report.html"
        file.write_text(html, encoding="utf-8")
        width, height = SIZES[size]
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if scheme == "dark" else "light",
            java_script_enabled=javascript,
        )
        contexts.append(context)
        seen = Opened(page=context.new_page())
        seen.page.on("console", lambda message: seen.messages.append(message.text))
        seen.page.on("pageerror", lambda error: seen.messages.append(str(error)))
        seen.page.on("dialog", seen.dismiss)
        seen.page.on("request", lambda request: seen.requests.append(request.url))
        seen.page.goto(file.as_uri())
        return seen

    yield opened
    for context in contexts:
        context.close()
