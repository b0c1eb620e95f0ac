"""The tasks of the paper's experiments, and of MinAtar."""

from __future__ import annotations

ATARI_8 = tuple(
    f"atari/{game}"
    for game in (
        "Asterix",
        "BeamRider",
        "Breakout",
        "MsPacman",
        "Qbert",
        "Seaquest",
        "SpaceInvaders",
        "VideoPinball",
    )
)
"""DQN's and PPO's games. The paper names Breakout, Seaquest and VideoPinball; the rest is ours."""

_ATARI_51 = """
Alien Amidar Assault Asterix Asteroids Atlantis BankHeist BattleZone BeamRider Berzerk Bowling
Boxing Breakout Centipede ChopperCommand CrazyClimber Defender DemonAttack DoubleDunk Enduro
FishingDerby Freeway Frostbite Gopher Hero IceHockey Jamesbond Kangaroo Krull KungFuMaster MsPacman
NameThisGame Phoenix Pong Qbert Riverraid RoadRunner Robotank Seaquest Skiing SpaceInvaders
StarGunner Surround Tennis TimePilot Tutankham UpNDown VideoPinball WizardOfWor YarsRevenge Zaxxon
"""
ATARI_51 = tuple(f"atari/{game}" for game in _ATARI_51.split())
"""PQN's "non-exploration-driven" games: ours, the 57 without Gravitar, MontezumaRevenge, Pitfall,
PrivateEye, Solaris and Venture."""

_HUMANOID = """
balance-simple balance-hard crawl hurdle maze pole reach run sit-simple sit-hard slide stair stand
walk
"""
HUMANOID_14 = tuple(f"humanoid/h1-{task}" for task in _HUMANOID.split())
VISUAL_HUMANOID = tuple(f"dmc/humanoid-{task}" for task in ("run", "stand", "walk"))
VISUAL_HARD = tuple(f"dmc/dog-{task}" for task in ("run", "stand", "trot", "walk"))
VISUAL_HARD += VISUAL_HUMANOID
_VISUAL_EASY = """
acrobot-swingup ball-in-cup-catch cartpole-balance cartpole-balance-sparse cartpole-swingup
cartpole-swingup-sparse cheetah-run finger-spin finger-turn-easy finger-turn-hard fish-swim
hopper-hop hopper-stand pendulum-swingup quadruped-run quadruped-walk reacher-easy reacher-hard
walker-run walker-stand walker-walk
"""
VISUAL_28 = tuple(f"dmc/{task}" for task in _VISUAL_EASY.split()) + VISUAL_HARD

MINATAR_5 = tuple(
    f"minatar/{game}" for game in ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
)
