"""Schedules as PyTorch reads, checks and simulates them: for each line of standard input, a JSON object with the text of a
schedule.csv and what it is of, a line with the number of simulated rounds, or with the error."""

import contextlib
import csv
import io
import json
import sys

from torch.distributed.pipelining import _schedule_visualizer as visualizer
from torch.distributed.pipelining.schedules import _Action, _simulate_comms_compute, _validate_schedule


def rounds(text, stages, parts, micro_batches):
    rows = csv.reader(io.StringIO(text))
    order = {rank: [_Action.from_str(cell) for cell in row] for rank, row in enumerate(rows)}
    rank_of = _validate_schedule(order, stages, parts, micro_batches)
    computed = [[action for action in row if action.is_compute_op] for row in order.values()]
    with contextlib.redirect_stdout(io.StringIO()):
        drawn = visualizer.add_schedule_op_spacing(computed)
    simulated = _simulate_comms_compute(order, lambda part: rank_of[part], parts)
    return {
        "rounds": max(len(row) for row in simulated.values()),
        "ranks": [rank_of[part] for part in range(parts)],
        "drawn": sum(action is not None for row in drawn for action in row),
    }


for line in sys.stdin:
    case = json.loads(line)
    try:
        answer = rounds(case["text"], case["stages"], case["parts"], case["microBatches"])
    except Exception as error:  # noqa: BLE001
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer))
