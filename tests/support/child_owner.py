"""A parent that is killed in a test: starts a child from a thread that ends, tells its pid, and waits."""

from __future__ import annotations

import threading

from headwatch.child import Child


def main() -> None:
    child = Child("support.child_process")
    starter = threading.Thread(target=child.start)
    starter.start()
    starter.join()
    child.request({"op": "echo", "what": 1}, timeout_s=60)
    child.submit({"op": "hang"})
    print(child.pid, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
