from .exact import solve_exact as solve_exact
from .greedy import SearchOptions as SearchOptions
from .instances import armida as armida
from .instances import generate as generate
from .instances import toy as toy
from .model import (
    Assignment as Assignment,
)
from .model import (
    Fleet as Fleet,
)
from .model import (
    Instance as Instance,
)
from .model import (
    Jobs as Jobs,
)
from .model import (
    check_assignment as check_assignment,
)
from .model import (
    parse_instance as parse_instance,
)
from .model import (
    read as read,
)
from .policies import POLICIES as POLICIES
from .policies import decide_now as decide_now
from .policies import policy_of as policy_of
from .report import report_of as report_of
from .simulation import (
    Simulation as Simulation,
)
from .simulation import (
    bill as bill,
)
from .simulation import bound as bound
from .simulation import (
    check as check,
)
from .simulation import (
    simulate as simulate,
)
