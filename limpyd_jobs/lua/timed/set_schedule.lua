-- verb: set schedule
-- what: a schedule is made or changed, with its place among those that are due
-- KEYS[1]  sorted set of the active schedules, by when they are due
-- KEYS[2]  the list of a signal: it tells idle workers, if no other schedule is due before; none to notify no worker
-- request
--   model, fields   '' for no value
--   pk              none for a new schedule
--   due             when it is due, in seconds; none for never, 'keep' for as before
--   seen            JSON: fields as the caller read them, '' for no value; none to change it whatever it is now
-- reply
--   done         {pk}
--   gone
--   changed      another process changed one of the fields that were seen: nothing is done
--   not unique   {field, value, pk of its owner}

--@include clock
--@include records
--@include signals

local model, pk, due = model_of(request.model), request.pk, request.due

probe('ZCARD', KEYS[1])
local fields = request.fields
for field, value in pairs(fields) do
  fields[field] = value ~= '' and value
end
if pk and is_gone(model, pk) then
  return answer('gone')
end
for field, value in pairs(request.seen and cjson.decode(request.seen) or NOTHING) do
  if (redis.call('HGET', hash_key(model, pk), field) or '') ~= value then
    return answer('changed')
  end
end
local conflict = not_unique(model, fields, pk)
if conflict then
  return answer('not unique', conflict)
end
if not pk then
  pk = new_pk(model)
  create(model, pk, fields)
else
  update(model, pk, fields)
end
if not due then
  redis.call('ZREM', KEYS[1], pk)
elseif due ~= 'keep' then
  redis.call('ZADD', KEYS[1], due, pk)
  if KEYS[2] and redis.call('ZCOUNT', KEYS[1], '(' .. score(now()), '(' .. due) == 0 then
    notify(KEYS[2], true)
  end
end
return answer('done', {pk = pk})
