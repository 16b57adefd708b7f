"""A real Slurm on one machine: made-up nodes and jobs that sleep, and what Slurm recorded of them.

Needs root and Debian's packages `slurmctld slurmd slurm-client munge`::

    python -m studies.slurm_trial FOLDER --jobs 2000 --nodes 16 --seed 2

writes `submitted.csv`, `jobs.txt.gz` (`scontrol show job -d -o`), `sdiag.txt` and `slurm.conf`
into a folder, and takes 40 minutes. `--again FOLDER/submitted.csv` submits the same jobs at the
same times once more, and shows how far Slurm repeats itself; with another `--port` each, trials run
side by side. What it wrote so is in `data/slurm`.

With `--shares` jobs are those of ten users in five accounts, whom fair share and age order; that
needs the packages `slurmdbd mariadb-server`, too, and writes `shares.txt` (`sshare -a -P`). What it
wrote so is in `data/slurm/shares`. With `--limits` some jobs are of a QOS that goes first, and
limits of QOS, accounts and users hold jobs back; `limits.txt` has them, as `sacctmgr -P` shows,
and is in `data/slurm/limits`.
"""

from __future__ import annotations

import gzip
import os
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer

GPUS_PER_NODE, CPUS_PER_GPU, GIB_PER_GPU = 8, 6, 30
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol")
ACCOUNTING = ("slurmdbd", "sacctmgr", "sshare", "mariadbd", "mariadb-install-db")
PATIENCE_S = 60
CONF = """\
ClusterName=lab
SlurmctldHost=localhost
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={run}/munge.socket
StateSaveLocation={run}/state
SlurmdSpoolDir={run}/spool/%n
SlurmctldPidFile={run}/ctld.pid
SlurmdPidFile={run}/spool/%n.pid
SlurmctldLogFile={run}/log/ctld.log
SlurmdLogFile={run}/log/%n.log
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,bf_continue,bf_max_job_test={depth},bf_max_time=30,\
bf_resolution=1,bf_window=2880,sched_interval=1,sched_min_interval=0,batch_sched_delay=0,\
default_queue_depth=2000,max_rpc_cnt=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityMaxAge=00:10:00
PriorityWeightJobSize=300
PriorityCalcPeriod=1
GresTypes=gpu
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
MinJobAge=7200
MaxJobCount=20000
NodeName={names} NodeHostname=localhost Port=[{first_port}-{last_port}] CPUs=64 RealMemory=500000 \
Gres=gpu:a100:8 State=UNKNOWN
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
SHARES_CONF = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort={dbd_port}
AccountingStoragePass={run}/munge.socket
PriorityWeightFairshare=10000
PriorityDecayHalfLife=00:05:00
"""
LIMITS_CONF = """\
AccountingStorageEnforce=limits,qos
AccountingStorageTRES=gres/gpu
PriorityWeightQOS=5000
"""
DBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={run}/munge.socket
DbdHost=localhost
DbdPort={dbd_port}
SlurmUser=root
LogFile={run}/log/dbd.log
PidFile={run}/dbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={sql_port}
StorageUser=root
StoragePass=none
StorageLoc=lab
"""
ACCOUNTS = {  # the account above and the share; users, whom any Debian has, and theirs
    "vision": ("root", 4, {"games": 1, "man": 1, "lp": 2}),
    "speech": ("root", 2, {"mail": 1, "news": 3}),
    "biology": ("root", 1, {"uucp": 1}),
    "genes": ("biology", 1, {"proxy": 1, "backup": 1}),
    "cells": ("biology", 1, {"list": 1, "irc": 1})}
LIMITS = (  # what sacctmgr is told
    "add qos high priority=10 MaxTRESPerUser=gres/gpu=32 MaxJobsPerUser=2",
    "modify qos normal set priority=2",
    "modify account vision biology speech set qos=normal,high",
    "modify account vision set GrpTRES=gres/gpu=40", "modify account biology set GrpJobs=16",
    "modify user news set MaxJobs=3", "modify user list uucp set MaxJobs=4")
HIGH_SHARE = 0.3  # of the jobs
USERS = [(user, account) for account, (_, _, users) in ACCOUNTS.items() for user in users]
GRES = "AutoDetect=off\nNodeName={names} Name=gpu Type=a100 File={run}/gpu[0-{last_gpu}]\n"


def made_jobs(count: int, nodes: int, seed: int, span: float) -> pd.DataFrame:
    """Jobs that a trial submits: more than the nodes can do meanwhile, so that a queue builds up.

    Parameters
    ----------
    count, nodes, seed : jobs, nodes of the cluster, and what the draws begin with
    span : within which share of the time that all GPUs would be busy with them the jobs come

    Returns
    -------
    submitted_s, gpus (in all), nodes (that it spans), asked_s (for which it sleeps), limit_min
    """
    rng = np.random.default_rng(seed)
    gpus = rng.choice([1, 2, 4, 8, 16, 32], count, p=[0.42, 0.21, 0.14, 0.15, 0.055, 0.025])
    asked_s = np.clip(rng.lognormal(3.0, 0.75, count), 4, 180).round().astype(int)
    slack = rng.uniform(1.0, 5.0, count)
    busy_s = float((gpus * asked_s).sum()) / (nodes * GPUS_PER_NODE)
    return pd.DataFrame({
        "submitted_s": np.sort(rng.uniform(0.0, span * busy_s, count)).round(2), "gpus": gpus,
        "nodes": np.maximum(1, gpus // GPUS_PER_NODE), "asked_s": asked_s,
        "limit_min": np.ceil(asked_s * slack / 60).astype(int)})


@contextmanager
def running(*command: str, env: dict[str, str] | None = None) -> Iterator[None]:
    """Run a daemon, and end it with the block."""
    silent = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=silent, stderr=silent, env=env) as process:
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def said(*command: str, env: dict[str, str]) -> str:
    """What a client of Slurm prints; an error ends the trial."""
    done = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True,
                          timeout=PATIENCE_S)
    return done.stdout


def write_files(run: Path, nodes: int, port: int, depth: int, more: str) -> dict[str, str]:
    """Write what the daemons read, GPUs as device files too; return the clients' environment."""
    for name in ("state", "spool", "log"):
        (run / name).mkdir()
    for gpu in range(GPUS_PER_NODE):
        os.mknod(run / f"gpu{gpu}", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    words = {"run": run, "names": f"n[01-{nodes:02d}]", "port": port, "first_port": port + 1,
             "last_port": port + nodes, "depth": depth, "last_gpu": GPUS_PER_NODE - 1,
             "dbd_port": port + nodes + 1, "sql_port": port + nodes + 2}
    (run / "slurm.conf").write_text((CONF + more).format(**words))
    (run / "slurmdbd.conf").write_text(DBD_CONF.format(**words))
    (run / "slurmdbd.conf").chmod(0o600)
    (run / "gres.conf").write_text(GRES.format(**words))
    (run / "munge.key").write_bytes(os.urandom(128))
    (run / "munge.key").chmod(0o400)
    return {**os.environ, "SLURM_CONF": str(run / "slurm.conf")}


def wait_for_nodes(nodes: int, env: dict[str, str]) -> None:
    """Wait until all nodes have joined.

    Raises
    ------
    TimeoutError : some have not within a minute
    """
    show = ["scontrol", "show", "node", "-o"]
    for _ in range(PATIENCE_S):
        shown = subprocess.run(show, env=env, capture_output=True, text=True, timeout=PATIENCE_S)
        if shown.stdout.count(" State=IDLE ") == nodes:
            return
        time.sleep(1)
    raise TimeoutError(f"not all {nodes} nodes are idle: {shown.stdout[:2000]}{shown.stderr}")


def tried(*command: str, env: dict[str, str]) -> None:
    """Run a client until it succeeds.

    Raises
    ------
    TimeoutError : it has not within a minute
    """
    for _ in range(PATIENCE_S):
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE_S)
        if done.returncode == 0:
            return
        time.sleep(1)
    raise TimeoutError(f"{' '.join(command)}: {done.stdout[:1000]}{done.stderr[:1000]}")


def keep_accounts(run: Path, port: int, env: dict[str, str], stack: ExitStack) -> None:
    """Start a database and slurmdbd, and tell them who shares with whom."""
    data = run / "sql"
    subprocess.run(["mariadb-install-db", f"--datadir={data}", "--skip-test-db", "--user=root"],
                   check=True, capture_output=True, timeout=PATIENCE_S)
    stack.enter_context(running(
        "mariadbd", "--no-defaults", f"--datadir={data}", "--user=root", "--skip-grant-tables",
        f"--socket={run / 'sql.socket'}", f"--port={port}", "--bind-address=127.0.0.1"))
    stack.enter_context(running("slurmdbd", "-D", env=env))
    add = ("sacctmgr", "--immediate", "add")
    tried(*add, "cluster", "lab", env=env)
    for account, (above, share, users) in ACCOUNTS.items():
        tried(*add, "account", account, f"parent={above}", f"fairshare={share}", env=env)
        for user, own in users.items():
            tried(*add, "user", user, f"account={account}", f"fairshare={own}", env=env)


def keep_limits(env: dict[str, str]) -> str:
    """Tell slurmdbd the limits; return how it shows them."""
    for line in LIMITS:
        tried("sacctmgr", "--immediate", *line.split(), env=env)
    columns = "format=Account,User,ParentName,GrpJobs,GrpTRES,MaxJobs,MaxTRES,QOS,DefaultQOS"
    return "".join(said("sacctmgr", "-P", "show", *what, env=env)
                   for what in (["qos"], ["assoc", columns]))


def submit(jobs: pd.DataFrame, env: dict[str, str]) -> pd.DataFrame:
    """Submit jobs when they are due; return them with their numbers, and when that was."""
    begin_s = time.monotonic()
    numbers, at_s = [], []
    for number, job in enumerate(jobs.to_dict("records")):
        time.sleep(max(0.0, begin_s + job["submitted_s"] - time.monotonic()))
        gpus = int(job["gpus"] / job["nodes"])
        answer = said(
            "sbatch", "--parsable", f"-Ju{number % 9}", f"-N{job['nodes']:.0f}",
            "--ntasks-per-node=1", f"--cpus-per-task={gpus * CPUS_PER_GPU}",
            f"--mem={gpus * GIB_PER_GPU}G", f"--gres=gpu:{gpus}", f"--time={job['limit_min']:.0f}",
            "--output=/dev/null", "--chdir=/", *(
                f"--{option}={job[name]}" for option, name in (
                    ("uid", "user"), ("account", "account"), ("qos", "qos")) if name in job),
            "--wrap", f"sleep {job['asked_s']:.0f}", env=env)
        numbers.append(int(answer))
        at_s.append(round(time.monotonic() - begin_s, 2))
    columns = ["job", *(name for name in jobs if name != "job")]
    return jobs.assign(submitted_s=at_s, job=numbers)[columns]


def main(folder: Annotated[Path, typer.Argument(help="a new or empty folder for the record")],
         jobs: Annotated[int, typer.Option(min=1)] = 2000,
         nodes: Annotated[int, typer.Option(min=1, max=99)] = 16,
         seed: Annotated[int, typer.Option(min=0)] = 2,
         span: Annotated[float, typer.Option(min=0, help="they come within this share of the time "
                                             "that all GPUs need for them")] = 0.5,
         depth: Annotated[int, typer.Option(min=1, help="bf_max_job_test")] = 100,
         shares: Annotated[bool, typer.Option(help="of users in accounts, by fair share")] = False,
         limits: Annotated[bool, typer.Option(help="with --shares: QOS, and limits")] = False,
         again: Annotated[Path | None, typer.Option(help="a submitted.csv: its jobs")] = None,
         port: Annotated[int, typer.Option(help="of slurmctld; nodes have those after it")] = 17000,
         ) -> None:
    """Let jobs sleep under a real Slurm with backfill and multifactor, and keep its record."""
    if limits and not shares:
        raise typer.BadParameter("limits are those of users: give --shares, too")
    missing = [name for name in PROGRAMS + ACCOUNTING * shares if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        raise typer.BadParameter("a trial needs root, and the packages slurmctld, slurmd, "
                                 "slurm-client and munge, with shares slurmdbd and "
                                 f"mariadb-server; missing: {', '.join(missing) or 'root'}")
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise typer.BadParameter(f"{folder} is not empty: choose another folder")
    made = pd.read_csv(again) if again else made_jobs(jobs, nodes, seed, span)
    if shares and not again:
        rng = np.random.default_rng(seed)
        drawn = rng.integers(len(USERS), size=jobs)
        users, accounts = zip(*(USERS[one] for one in drawn), strict=True)
        made = made.assign(user=users, account=accounts)
        if limits:
            made = made.assign(qos=np.where(rng.random(jobs) < HIGH_SHARE, "high", "normal"))
    with tempfile.TemporaryDirectory(prefix="slurm") as place, ExitStack() as stack:
        run = Path(place)
        run.chmod(0o755)  # the jobs of users read their script in it
        env = write_files(run, nodes, port, depth, SHARES_CONF * shares + LIMITS_CONF * limits)
        files = {"socket": "munge.socket", "key-file": "munge.key", "pid-file": "munge.pid",
                 "seed-file": "munge.seed", "log-file": "log/munge.log"}
        stack.enter_context(running("munged", "--foreground", "--force", *(
            f"--{option}={run / name}" for option, name in files.items())))
        conf = str(run / "slurm.conf")
        if shares:
            keep_accounts(run, port + nodes + 2, env, stack)
        stack.enter_context(running("slurmctld", "-D", "-f", conf, env=env))
        for node in range(1, nodes + 1):
            stack.enter_context(running("slurmd", "-D", "-f", conf, "-N", f"n{node:02d}", env=env))
        wait_for_nodes(nodes, env)
        if limits:
            (folder / "limits.txt").write_text(keep_limits(env))
        submitted = submit(made, env)
        deadline_s = time.monotonic() + 60 * float(made["limit_min"].sum())
        while said("squeue", "--noheader", env=env).strip():
            if time.monotonic() > deadline_s:
                raise TimeoutError("jobs are left after the sum of their time limits")
            time.sleep(5)
        jobs_text = said("scontrol", "show", "job", "-d", "-o", env=env)
        if shares:
            (folder / "shares.txt").write_text(said("sshare", "-a", "-P", env=env))
        (folder / "sdiag.txt").write_text(said("sdiag", env=env))
        (folder / "jobs.txt.gz").write_bytes(gzip.compress(jobs_text.encode(), mtime=0))
        (folder / "slurm.conf").write_text(Path(conf).read_text().replace(place, "RUN"))
        submitted.to_csv(folder / "submitted.csv", index=False)


if __name__ == "__main__":
    typer.run(main)
