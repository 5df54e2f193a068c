"""Moments on the wire, and periods, which have a first moment and end before their last."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from app.domain.timestamps import Period, format_timestamp

NOON = datetime(2030, 1, 2, 12, tzinfo=UTC)
TICK = timedelta(microseconds=1)


@pytest.mark.parametrize(
    "at, is_in",
    [
        (NOON - TICK, False),
        (NOON, True),
        (NOON + timedelta(minutes=30), True),
        (NOON + timedelta(hours=1) - TICK, True),
        (NOON + timedelta(hours=1), False),
        (NOON + timedelta(hours=2), False),
    ],
)
def test_a_period_includes_its_start_and_excludes_its_end(at: datetime, is_in: bool) -> None:
    assert Period(NOON, NOON + timedelta(hours=1)).contains(at) is is_in


def test_a_period_without_a_start_has_all_times_before_its_end() -> None:
    period = Period(None, NOON)
    assert period.contains(datetime.min.replace(tzinfo=UTC))
    assert period.contains(NOON - TICK)
    assert not period.contains(NOON)


def test_adjacent_periods_do_not_overlap() -> None:
    before, after = Period(None, NOON), Period(NOON, NOON + timedelta(days=1))
    for at in (NOON - TICK, NOON, NOON + TICK):
        assert before.contains(at) is not after.contains(at)


def test_a_timestamp_is_written_in_utc_with_milliseconds() -> None:
    assert format_timestamp(NOON) == "2030-01-02T12:00:00.000Z"
    elsewhere = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert format_timestamp(elsewhere + timedelta(microseconds=1999)) == "2030-01-02T12:00:00.001Z"
