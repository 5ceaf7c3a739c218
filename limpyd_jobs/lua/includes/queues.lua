-- Queues: whether jobs can be claimed there, and whether they may.

--@include shared_key
--@include records

-- Whether the queues of a name are paused, given the keys of one queue: a set beside the queues has the names.
local function is_paused(base, name)
  return name and redis.pcall('SISMEMBER', shared_key(base, 'paused'), name) == 1
end

-- A queue, given its keys, as {name, priority, lanes: '1' if it has lanes, 'fair' if they take turns}, if a claim can be
-- recorded there; else nil.
local function sound_queue(base)
  local found = redis.pcall('HMGET', base .. ':hash', 'name', 'priority', '_lanes')
  local name, priority, lanes = unpack(found)
  local exists = not found.err and (name or priority or redis.call('EXISTS', base .. ':hash') == 1)
  local leases = base .. ':_running'
  probed[leases] = probed[leases] or exists and type(redis.pcall('ZCARD', leases)) == 'number'
  return exists and probed[leases] and {name = name, priority = priority, lanes = lanes} or nil
end

local open_queues = {}

-- The same, but nil if the queue is paused. It is read once, as it does not change while jobs are claimed.
local function open_queue(base)
  if open_queues[base] == nil then
    local queue = sound_queue(base)
    open_queues[base] = queue and not is_paused(base, queue.name) and queue or false
  end
  return open_queues[base]
end

local last_queues = {}

-- The last pk of the queues of a model, given the keys of one queue, so that workers see new queues; or ''.
local function last_queue(base)
  if not last_queues[base] then
    local pk = redis.pcall('GET', shared_key(base, 'max_pk'))
    last_queues[base] = type(pk) == 'string' and pk or ''
  end
  return last_queues[base]
end
