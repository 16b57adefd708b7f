from .bounds import bound as bound
from .evaluation import Study as Study
from .evaluation import read_study as read_study
from .evaluation import run_study as run_study
from .inflation import Run as Run
from .inflation import check as check
from .inflation import simulate as simulate
from .lockstep import Runs as Runs
from .lockstep import simulate_together as simulate_together
from .model import Cluster as Cluster  # type: ignore[attr-defined]
from .model import Policy as Policy
from .model import PowerSettings as PowerSettings
from .model import Score as Score
from .model import Tasks as Tasks  # type: ignore[attr-defined]
from .model import read as read
from .model import toy as toy
from .policies import POLICIES as POLICIES
from .policies import policy_of as policy_of
from .report import report_of as report_of
