-- A worktree that its user removed is not found again by itself while git still lists it.

alter table headwatch.clone add column let_go text[] not null default '{}';
comment on column headwatch.clone.let_go is
    'Git dirs of worktrees that were removed by hand and that git still lists: not registered again but by hand.';
