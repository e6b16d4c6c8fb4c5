# The public names; what an import costs is paid when a name is first used.
from .dp_sgd.clipping import ClippedSum as ClippedSum
from .dp_sgd.privacy import CentralPrivacy as CentralPrivacy
from .dp_sgd.training import CentralDPOTrainer as CentralDPOTrainer
from .dp_sgd.training import CentralRewardTrainer as CentralRewardTrainer
from .embeddings import SentenceEmbeddings as SentenceEmbeddings
from .policies.dpo import PrivateDPOConfig as PrivateDPOConfig
from .policies.dpo import PrivateDPOTrainer as PrivateDPOTrainer
from .policies.rebel import RebelConfig as RebelConfig
from .policies.rebel import RebelTrainer as RebelTrainer
from .rewards.reward_training import PrivateRewardConfig as PrivateRewardConfig
from .rewards.reward_training import PrivateRewardTrainer as PrivateRewardTrainer
from .rewards.text_rewards import TextRewardModel as TextRewardModel
from .training.private_training import CentralDPOConfig as CentralDPOConfig
from .training.private_training import CentralRewardConfig as CentralRewardConfig
from .user_level import CentralPolicyConfig as CentralPolicyConfig
from .user_level import CentralPolicyTrainer as CentralPolicyTrainer
from .user_level import SlotPrivacy as SlotPrivacy
