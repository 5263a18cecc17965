"""pipelines.analysis.page"""
