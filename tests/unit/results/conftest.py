from support.replays import replays_are_answered_once

__all__ = ["replays_are_answered_once"]
