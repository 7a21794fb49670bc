"""Operations on topics, groups, offsets, replicas and settings, as steps that any caller can carry out."""
