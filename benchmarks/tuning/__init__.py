"""What `whyidle tune` finds, against an exhaustive grid."""
