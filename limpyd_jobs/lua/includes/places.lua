-- Places: where a job stands in a queue: in its waiting list, its delayed set, its running set.

--@include clock
--@include records
--@include signals

-- The pk of the queue of that name and priority (the oldest, if there are several), or nil. A queue that is only half
-- made, in the indexes but without a hash, does not count.
local function find_queue(queue_model, name, priority)
  local pks = redis.call('SINTER', queue_model.indexes.name[1] .. name, queue_model.indexes.priority[1] .. priority)
  if #pks > 1 then
    table.sort(pks, function(a, b) return (tonumber(a) or math.huge) < (tonumber(b) or math.huge) end)
  end
  for _, pk in ipairs(pks) do
    if redis.call('EXISTS', hash_key(queue_model, pk)) == 1 then
      return pk
    end
  end
end

local function find_or_create_queue(queue_model, name, priority)
  local pk = find_queue(queue_model, name, priority)
  if not pk then
    pk = new_pk(queue_model)
    create(queue_model, pk, {name = name, priority = priority})
  end
  return pk
end

--@rarely
local function unplace_from(base, ident)
  probe('LLEN', base .. ':waiting')
  probe('ZCARD', base .. ':delayed', base .. ':_running')
  local found = redis.call('LREM', base .. ':waiting', 0, ident)
    + redis.call('ZREM', base .. ':delayed', ident)
    + redis.call('ZREM', base .. ':_running', ident)
    + (tonumber(redis.pcall('LREM', base .. ':_quarantine', 0, ident)) or 0)
  return found > 0 and found or unpark(base, ident)
end

-- Takes a job out of the first of some queues where it stands; returns that queue, or nil.
--@rarely
local function unplace_from_any(queue_model, pks, ident)
  for _, pk in ipairs(pks) do
    local base = queue_model.name .. ':' .. pk
    if unplace_from(base, ident) > 0 then
      return base
    end
  end
end

-- Takes a job out of the queue that its hash names, and returns the beginning of the keys of that queue, or nil. A job
-- of version 2 names none. Most likely it stands in the queue of the given name and its own priority, else in another
-- one of that priority, else, if its priority was changed by hand, in any queue.
--@rarely
local function unplace(queue_model, name, job)
  local priority, known = unpack(redis.call('HMGET', job.key, 'priority', '_queue_key'))
  priority = priority or '0'
  if known and redis.call('TYPE', known .. ':hash').ok == 'hash' and unplace_from(known, job.ident) > 0 then
    return known
  end
  local likely = find_queue(queue_model, name, priority)
  return likely and unplace_from_any(queue_model, {likely}, job.ident)
    or unplace_from_any(
      queue_model, redis.call('SRANDMEMBER', queue_model.indexes.priority[1] .. priority, 1000), job.ident)
    or unplace_from_any(queue_model, redis.call('SRANDMEMBER', queue_model.name .. ':collection', 1000), job.ident)
end

-- The note of a job whose retry policy changes its priority: the first priority, and the one it has now.
local function note_of_priority(first, priority)
  return first .. ' ' .. priority
end

-- The first priority of a job, by that note; nil without a note, or if the job was given another priority since.
local function first_priority(note, priority)
  local first, last = string.match(note or '', '^(%S+) (%S+)$')
  return last == priority and first or nil
end

-- Lets a job with limits come to the end of its lane, or to its beginning, if it is parked.
--@rarely
local function set_place(changes, prepend)
  changes._place = (prepend and '-' or '') .. score(now())
end

local function is_delayed(due)
  return due and due.at > now()
end

-- The fields of a job that waits in a queue, or is delayed there until `due` (as due_at returns it). Without a queue,
-- the caller puts the job in one.
local function placed(changes, priority, due, base)
  changes.queued = '1'
  changes._queue_key = base or false
  changes.priority = priority
  if is_delayed(due) then
    changes.status = STATUSES.DELAYED
    changes.delayed_until = due.text
  else
    changes.status = STATUSES.WAITING
    changes.delayed_until = false
  end
  return changes
end

-- Makes sure that a job can be put in the queue of that name and priority; returns the beginning of its keys.
local function prepare_place(queue_model, name, priority, due)
  local base = queue_model.name .. ':' .. find_or_create_queue(queue_model, name, priority)
  known_names[base] = name
  if is_delayed(due) then
    probe('ZCARD', base .. ':delayed')
  else
    probe('LLEN', base .. ':waiting')
  end
  return base
end

-- Puts a job in the list or set of a queue for its new status. It notifies a worker, or, if the job is the first one to
-- be due, all workers.
local function push(base, ident, status, due, prepend)
  if status == STATUSES.DELAYED then
    redis.call('ZADD', base .. ':delayed', score(due.at), ident)
    if redis.call('ZRANGE', base .. ':delayed', 0, 0)[1] == ident then notify_worker(base, true) end
  else
    redis.call(prepend and 'LPUSH' or 'RPUSH', base .. ':waiting', ident)
    notify_worker(base)
  end
end

-- Moves a job from anywhere to the waiting list or the delayed set of the queue of that name and priority.
--@rarely
local function place(job, queue_model, name, priority, due, prepend, changes)
  local base = prepare_place(queue_model, name, priority, due)
  placed(changes, priority, due, base)
  if job.model.limits then set_place(changes, prepend) end
  update(job.model, job.pk, changes)
  push(base, job.ident, changes.status, due, prepend)
end
