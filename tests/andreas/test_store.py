"""The database of the job manager: what comes back."""
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.andreas.service import Book, Join, Measure, Report, Submit, join, measure, report, submit
from sched_lab.andreas.store import Store, read_book
from tests.andreas.test_service import carry_out

PRICES = {"TESLA,1": 0.12}


def sample(name: str, epochs: int, seconds: float, application: str = "net", batch: int = 32,
           configuration: str = "TESLA,1") -> Measure:
    return Measure(id=name, application=application, batch=batch, configuration=configuration, epochs=epochs,
                   seconds=seconds)


def profiled(*samples: Measure) -> Book:
    book = Book(PRICES)
    for one in samples:
        book.put_sample(one)
    return book


# --- profiles

def test_long_samples_count_more() -> None:
    book = profiled(sample("a", 1, 40.0), sample("b", 3, 96.0), sample("c", 1, 7.0, batch=64),
                    sample("d", 1, 9.0, application="Net"))
    assert book.epoch_s("net", 32) == {"TESLA,1": 34.0}          # (40 + 96) / (1 + 3)
    assert book.epoch_s("net", 64) == {"TESLA,1": 7.0} and book.epoch_s("Net", 32) == {"TESLA,1": 9.0}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.floats(0.1, 1e6)), min_size=1, max_size=6), st.randoms())
def test_the_order_of_samples_does_not_matter(samples: list[tuple[int, float]], random: object) -> None:
    means = []
    for _ in range(2):
        means.append(profiled(*(sample(f"s{k}", *one) for k, one in enumerate(samples))).epoch_s("net", 32)["TESLA,1"])
        random.shuffle(samples)  # type: ignore[attr-defined]
    assert means[0] == means[1]
    each = [seconds / epochs for epochs, seconds in samples]
    assert min(each) * (1 - 1e-12) <= means[0] <= max(each) * (1 + 1e-12)


# --- rows

def test_what_is_stored_comes_back(tmp_path: Path) -> None:
    """Also two ids that only capitals tell apart, and two applications that only a blank does."""
    store = Store(tmp_path / "jobs.db")
    book = read_book(store, PRICES)

    carry_out(book, store, join(book, "v1", Join(gpu="TESLA", num_gpus=1), 0.0))
    for number, application in enumerate(("net", "net ", "Net")):
        carry_out(book, store, measure(book, sample(f"m{number}", 3, 0.1 + number, application), 1.0))
    for name in ("a", "A"):
        carry_out(book, store, submit(book, Submit(id=name, application="net", batch=32, epochs=4, due_s=2e9,
                                      weight_eur_per_s=3e-4), 2.0))
    carry_out(book, store, report(book, "A", Report(sequence=2, epochs_done=3), 3.5))
    store.close()
    again = Store(tmp_path / "jobs.db")
    found = read_book(again, PRICES)
    again.close()
    assert (found.jobs, found.samples, found.nodes) == (book.jobs, book.samples, book.nodes)
    assert (found.last_number, found.last_s, found.damaged) == (2, 3.5, {})
    assert {name: found.epoch_s(name, 32) for name in ("net", "net ", "Net")} == {
        name: book.epoch_s(name, 32) for name in ("net", "net ", "Net")}


def test_tables_may_be_created_by_all_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        for store in pool.map(Store, [tmp_path / "jobs.db"] * 4):
            store.close()
