"""Rewards that read text: trained on randomized answers, saved, and handed to trainers."""
