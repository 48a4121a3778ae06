"""The commit that a report is of."""

import subprocess


def described(repository):
    """The commit's name, with " with changes that are not committed" behind it if the tree has some: such a report is of no commit."""
    def git(*words):
        return subprocess.run(["git", "-C", repository, *words], capture_output=True, text=True)

    commit = git("describe", "--always").stdout.strip()
    if not commit:
        return "unknown"
    # Documents and reports change nothing that is measured.
    status = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!benches/results", ":!docs")
    return f"{commit} with changes that are not committed" if status.stdout.strip() else commit
