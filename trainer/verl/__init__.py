"""trainer.verl"""
