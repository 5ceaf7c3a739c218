-- A schedule is made or changed, with its place among those that are due. No transition of a job.
--
-- KEYS[1]  sorted set of the schedules that are active, by when they are due
-- KEYS[2]  the list of a signal: the idle workers that wait for it are told if no other one is due before; none not to
-- ARGV[1]  schedule model
-- ARGV[2]  pk, '' for a new one
-- ARGV[3]  when it is due, in seconds; '' for never, 'keep' for as before
-- ARGV[4…] fields: field, value ('' for none)…
--
-- {'set', pk}      {'gone'}      {'not unique', field, value, pk of its owner}

--@include clock
--@include records
--@include notifying

local model, pk, due = model_of(ARGV[1]), ARGV[2], ARGV[3]

probe('ZCARD', KEYS[1])
local fields = pairs_from(4)
for field, value in pairs(fields) do
  fields[field] = value ~= '' and value
end
if pk ~= '' and is_gone(model, pk) then
  return {'gone'}
end
local conflict = not_unique(model, fields, pk)
if conflict then
  return conflict
end
if pk == '' then
  pk = new_pk(model)
  create(model, pk, fields)
else
  update(model, pk, fields)
end
if due == '' then
  redis.call('ZREM', KEYS[1], pk)
elseif due ~= 'keep' then
  redis.call('ZADD', KEYS[1], due, pk)
  if KEYS[2] and redis.call('ZCOUNT', KEYS[1], '(' .. score(now()), '(' .. due) == 0 then
    notify(KEYS[2], true)
  end
end
return {'set', pk}
