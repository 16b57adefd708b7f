"""Print, below the table of pytest-benchmark, time per call or arrivals per second, and the authors' speed."""

# "about 10 minutes" for one experiment on 2 vCPU: the README of the authors' simulator
AUTHORS_S = 600


def pytest_terminal_summary(terminalreporter, config):
    session = getattr(config, "_benchmarksession", None)
    if session is None or not session.benchmarks:
        return
    terminalreporter.section("in words")
    for bench in session.benchmarks:
        info = bench.extra_info
        line = f"{bench.name:52s} {bench.stats.median:8.3f} s"
        if "arrivals" in info:
            speed = info["arrivals"] / bench.stats.median
            line += f" {speed:10,.0f} arrivals/s {AUTHORS_S / bench.stats.median:8,.0f} x the authors' speed"
        if "calls" in info:
            each_s = bench.stats.median / info["calls"]
            line += f" {1000 * each_s:10.3f} ms a call"
            line += f" {info['paper_s'] / each_s:8,.0f} x the paper's speed" if info.get(
                "paper_s") else ""
        if "memory_mib" in info:
            line += f" {info['memory_mib']:6.0f} MiB at most"
        if "announced_mib" in info:
            line += f" {info['announced_mib']:6.0f} MiB announced"
        if "pairs" in info:
            seconds = bench.stats.min
            line += (
                f" {info['pairs'] / seconds / 1e6:8.2f} million pairs/s {info['bytes'] / seconds / 1e9:8.2f} GB/s"
                f" (copying: {info['copy'] / 1e9:.2f} GB/s)")
        if "alone_us" in info:
            line += f" {info['us']:8.2f} us an arrival, {info['alone_us']:.2f} us in the compiled engine"
        if "exponent" in info:
            line += f" grows with the power {info['exponent']:.2f}, {info['exponent_large']:.2f} for the large sizes"
        terminalreporter.write_line(line)
        if "growth" in info:
            sizes = ", ".join(f"{size}: {1000 * best_s:.1f} ms"
                              for size, best_s in info["growth"].items())
            terminalreporter.write_line(f"    {sizes}")
