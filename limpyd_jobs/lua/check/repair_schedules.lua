-- verb: repair schedules
-- what: looks whether schedules stand among those that are due, or not, as their hashes say; or puts that right
-- KEYS[1]  sorted set of the active schedules, by when they are due
-- request
--   model, pks, repair
-- reply
--   done   {found: [pk, problem, detail]…; the pk is '' for a problem of the sorted set}

--@include clock
--@include records

local model, repair = model_of(request.model), request.repair

-- The score that a schedule should have, false for none; nil if that is not known.
local function expected(pk)
  local stored = redis.pcall('HMGET', hash_key(model, pk), 'next_run', 'paused')
  local next_run, paused = unpack(stored)
  if stored.err then
    return nil
  elseif paused or not next_run then
    return false
  end
  local moment = parse_date(next_run)
  return moment and score(moment)
end

-- Nothing is known if the collection is of a wrong type.
local function problem_of(pk, due, wanted)
  local is_known, is_none = pcall(is_gone, model, pk)
  if is_known and is_none then
    return due and 'no such schedule'
  elseif not is_known or wanted == nil then
    return nil
  elseif not wanted then
    return due and 'due but not active'
  elseif not due then
    return 'not among those due'
  end
  return math.abs(tonumber(due) - tonumber(wanted)) > 0.00001 and 'wrong due time'
end

local found = {}
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'zset' and kind ~= 'none' then
  found[1] = {'', 'due set of a wrong type', kind}
  if not repair then
    return answer('done', {found = found})
  end
  redis.call('DEL', KEYS[1])
end
for _, pk in ipairs(cjson.decode(request.pks)) do
  local due = redis.call('ZSCORE', KEYS[1], pk)
  local wanted = expected(pk)
  local problem = problem_of(pk, due, wanted)
  if problem then
    found[#found + 1] = {pk, problem, due or ''}
    if repair and wanted and problem ~= 'no such schedule' then
      redis.call('ZADD', KEYS[1], wanted, pk)
    elseif repair then
      redis.call('ZREM', KEYS[1], pk)
    end
  end
end
return answer('done', {found = found})
