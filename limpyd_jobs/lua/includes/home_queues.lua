-- Homes: the queue where a job belongs that stands in none.

--@include places
--@include queues

local function named_home(queue_model, name, priority, make)
  local is_sound, pk = pcall(find_queue, queue_model, name, priority)  -- an index may be of a wrong type
  return is_sound and pk and queue_model.name .. ':' .. pk or make(priority)
end

-- Whether a queue, given the beginning of its keys, is of a model; without a queue, `otherwise`.
local function is_of_model(queue_model, base, otherwise)
  if not base then return otherwise end
  return string.sub(base, 1, #queue_model.name + 1) == queue_model.name .. ':'
end

-- The queue that the hash of a job names; else that of the given name, if there is one, and the priority of the job,
-- which `make` makes if need be; else the only one of its priority; nil if none is known.
local function home_of(queue_model, name, known, priority, make)
  if known and sound_queue(known) then return known end
  priority = string.match(priority or '', '^[+-]?%d+$') or '0'
  local home = name and named_home(queue_model, name, priority, make)
  if home then return home end
  local pk, other = unpack(redis.pcall('SRANDMEMBER', queue_model.indexes.priority[1] .. priority, 2))
  return pk and not other and queue_model.name .. ':' .. pk or nil
end
