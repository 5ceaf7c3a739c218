-- verb: merge queues
-- what: moves some of what is in a queue to another one of the same name and priority
-- KEYS[1]  from: model name and pk
-- KEYS[2]  to: model name and pk
-- request
--   limit     how many jobs at most
--   classes
-- reply
--   done   {moved: how many, none if the queues are no longer alike}

--@include idents

local from, to, limit, classes = KEYS[1], KEYS[2], tonumber(request.limit), classes_from(request.classes)

local function is_alike()
  local name, priority = unpack(redis.call('HMGET', from .. ':hash', 'name', 'priority'))
  local other_name, other_priority = unpack(redis.call('HMGET', to .. ':hash', 'name', 'priority'))
  return name and name == other_name and priority == other_priority
end

-- The hash of a job says where it is.
local function follow(ident)
  local path, pk = parse_ident(ident)
  if path and classes[path] then
    local model = model_of(classes[path])
    local key = hash_key(model, pk)
    if redis.pcall('HGET', key, '_queue_key') == from then
      update(model, pk, {_queue_key = to})
    end
  end
end

local function move_list(name, room)
  local idents = redis.call('LRANGE', from .. name, 0, room - 1)
  for _, ident in ipairs(idents) do
    redis.call('RPUSH', to .. name, ident)
    follow(ident)
  end
  redis.call('LTRIM', from .. name, #idents, -1)
  return #idents
end

local function move_set(name, room)
  local members = redis.call('ZRANGE', from .. name, 0, room - 1, 'WITHSCORES')
  for i = 1, #members, 2 do
    redis.call('ZADD', to .. name, members[i + 1], members[i])
    redis.call('ZREM', from .. name, members[i])
    follow(members[i])
  end
  return #members / 2
end

-- Jobs that are parked go to the end of the waiting list of the other queue, to be parked there.
local function move_parked(room)
  local idents = redis.call('ZRANGE', from .. ':_parked', 0, room - 1)
  for _, ident in ipairs(idents) do
    unpark(from, ident)
    redis.call('RPUSH', to .. ':waiting', ident)
    follow(ident)
  end
  return #idents
end

if not is_alike() then
  return answer('done', {moved = 0})
end
for _, base in ipairs({from, to}) do
  probe('LLEN', base .. ':waiting', base .. ':success', base .. ':errors', base .. ':_quarantine')
  probe('ZCARD', base .. ':delayed', base .. ':_running', base .. ':_parked')
end
local moved = move_parked(limit)
if moved < limit then drop_lanes(from) end
for _, name in ipairs({':_running', ':delayed', ':waiting', ':success', ':errors', ':_quarantine'}) do
  if moved < limit then
    local is_set = name == ':_running' or name == ':delayed'
    moved = moved + (is_set and move_set or move_list)(name, limit - moved)
  end
end
return answer('done', {moved = moved})
