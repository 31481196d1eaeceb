"""torch.multiprocessing's queues and shared models: STRATEGY METHOD.

Tensors go out and come back, a shared parameter is written by a child, and under file_system a
producer is gone before its tensor is taken.
"""

import sys

import torch
import torch.multiprocessing as mp

STRATEGY, METHOD = sys.argv[1:]
ELEMENTS = 40 << 18  # 40 MiB of float32
PATIENCE = 20  # seconds; a queue swallows what its feeder thread cannot send


def double(inbox: "mp.Queue", outbox: "mp.Queue", model: torch.nn.Module) -> None:
    mp.set_sharing_strategy(STRATEGY)
    while (tensor := inbox.get()) is not None:
        outbox.put(tensor * 2)
        del tensor
    with torch.no_grad():
        model.weight.fill_(3)
    inbox.get()  # the sender of a descriptor has to live until it is received


def produce(outbox: "mp.Queue") -> None:
    mp.set_sharing_strategy(STRATEGY)
    outbox.put(torch.full((ELEMENTS,), 5.0))


def main() -> None:
    torch.set_num_threads(1)  # GNU OpenMP's threads do not survive a fork
    mp.set_sharing_strategy(STRATEGY)
    context = mp.get_context(METHOD)
    inbox, outbox = context.Queue(), context.Queue()
    model = torch.nn.Linear(3000, 3000).share_memory()  # 36 MB
    worker = context.Process(target=double, args=(inbox, outbox, model), daemon=True)
    worker.start()
    for number in range(4):
        inbox.put(torch.full((ELEMENTS,), float(number)))
    doubled = [outbox.get(timeout=PATIENCE) for _ in range(4)]
    assert [tensor[-1].item() for tensor in doubled] == [0.0, 2.0, 4.0, 6.0]
    inbox.put(None)
    inbox.put(None)
    worker.join()
    assert worker.exitcode == 0 and model.weight.eq(3).all()
    if STRATEGY == "file_system":
        producer = context.Process(target=produce, args=(outbox,), daemon=True)
        producer.start()
        producer.join()
        assert producer.exitcode == 0 and outbox.get(timeout=PATIENCE)[-1].item() == 5.0
    print("queues done")


if __name__ == "__main__":
    main()
