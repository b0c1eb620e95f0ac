"""What learners share: replay, rollouts, returns, exploration, schedules, normalization."""
