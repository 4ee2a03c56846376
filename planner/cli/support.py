"""`meshwright support`: which architectures' memory ledgers equal PyTorch's own tracker, and in which variants."""

from planner.cli import asked, output


def support_command(as_json: asked.Json = False) -> None:
    """Compare the ledger of every architecture that was tracked with what the tracker saw."""
    from cost_models.memory.architectures import known
    from planner.validate.tracker_report import WORST_EQUAL, architectures, render_architectures, shipped

    entries = architectures(shipped())
    tracked = {entry["architecture"] for entry in entries}
    untracked = sorted(set(known()) - tracked)
    if as_json:
        output.print_json(
            {"architectures": entries, "written_down_but_not_tracked": untracked, "tolerance": WORST_EQUAL}
        )
        return
    console = output.plain_console()
    console.print(render_architectures(entries))
    console.print(f"A variant equals the tracker when no row's total is off by more than {100 * WORST_EQUAL:g} %.")
    if untracked:
        console.print(f"Written down, not tracked: {', '.join(untracked)}.")
    console.print("Any other model_type gets a generic ledger from its numbers.")
