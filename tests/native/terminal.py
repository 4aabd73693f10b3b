"""A program on a terminal that tmux emulates."""

import subprocess

from harness import run, wait_for


class Terminal:
    """A terminal with a command in it; after it, the shell prints its exit code."""

    def __init__(self, folder, environment, width, height, command):
        self.tmux = ["tmux", "-S", str(folder / f"tmux-{width}"), "-f", "/dev/null"]
        line = f"{command}; echo exit code $?; exec sleep 600"
        run(*self.tmux, "new-session", "-d", "-s", "top", "-x", width, "-y", height, line, env=environment)

    def text(self):
        return run(*self.tmux, "capture-pane", "-p", "-t", "top")

    def press(self, *keys):
        run(*self.tmux, "send-keys", "-t", "top", *keys)

    def shows(self, *words):
        """Waits until all words are on the screen."""
        try:
            wait_for(lambda: all(word in self.text() for word in words), 20, f"{words} on the screen")
        except AssertionError as error:
            raise AssertionError(f"{error}; the screen is:\n{self.text()}") from None

    def end(self):
        subprocess.run([*self.tmux, "kill-server"], capture_output=True)
