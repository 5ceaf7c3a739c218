-- verb: promote
-- from: delayed
-- to: waiting
-- what: all that are due, in one step
--
-- KEYS     the queues: model name and pk
-- ARGV[1]  how many jobs at most
-- ARGV[2]  the job classes known to the caller: class path and job model, one in a line
-- ARGV[3]  mode: 'place'; 'custom' leaves the waiting lists to the caller
--
-- {done, more, failures, unknown, reindexes, ready}
--   done       how many left the delayed sets
--   more       1 if more are due
--   failures   {ident, reason}… of those that could not be moved: dropped if they never can
--   unknown    {queue, ident}… of classes that are not among those given: left where they are
--   reindexes  {ident, reindex}…
--   ready      {queue, ident}… mode 'custom': of those that the caller has to put in the waiting list
-- or the error of Redis, if it refuses all writes for now
--
-- A job that is due but not delayed (canceled, say), or delayed by its code while it still runs, is moved as it is, for
-- a worker to skip it. A queue whose jobs are being moved by redis-limpyd-jobs 2, which sets a lock, is left alone; so
-- is one with keys of a wrong type.

--@include clock
--@include idents
--@include quarantine
--@include notifying

local limit, classes, is_custom = tonumber(ARGV[1]), classes_from(ARGV[2]), ARGV[3] == 'custom'
local moment = score(now())
local done, failures, unknown, reindexes, ready = 0, {}, {}, {}, {}

-- Whether a write failed for no fault of the record, but as Redis accepts none for now, or none of this user.
local function is_refused_by_redis(failure)
  local text = text_of_error(failure)
  for _, reason in ipairs({'MISCONF', 'NOREPLICAS', 'READONLY', 'OOM', 'NOPERM', 'ACL failure', "can't run this"}) do
    if string.find(text, reason, 1, true) then
      return true
    end
  end
end

local refusal_of_redis

local function drop(queue, ident, reason)
  redis.call('ZREM', queue .. ':delayed', ident)
  redis.pcall('HDEL', queue .. ':_deferrals', ident)
  failures[#failures + 1] = {ident, reason}
  done = done + 1
end

local function promote(queue, ident, model, pk)
  reindex = {}
  local hash = redis.call('HMGET', hash_key(model, pk), 'status', '_claim_token')
  if hash[1] == 'd' and not hash[2] then
    -- should the caller not come to it, the job is found in no list, and is put in this queue
    update(model, pk, {status = 'w', _queue_key = is_custom and queue or nil})
    if #reindex > 0 then reindexes[#reindexes + 1] = {ident, reindex} end
  end
  if is_custom then
    ready[#ready + 1] = {queue, ident}
  else
    redis.call('RPUSH', queue .. ':waiting', ident)
    notify_worker(queue)
  end
  redis.call('ZREM', queue .. ':delayed', ident)
  done = done + 1
end

local function wake_safely(queue, ident)
  local path, pk = parse_ident(ident)
  if not path then
    set_aside(queue, ident)
    return drop(queue, ident, 'not the ident of a job')
  elseif not classes[path] then
    unknown[#unknown + 1] = {queue, ident}
    return
  end
  local model = model_of(classes[path])
  if redis.call('EXISTS', hash_key(model, pk)) == 0 then
    return drop(queue, ident, 'the job does not exist')
  end
  local ok, failure = pcall(promote, queue, ident, model, pk)
  if not ok and is_broken(hash_key(model, pk)) then
    set_aside(queue, ident)
    drop(queue, ident, text_of_error(failure))
  elseif not ok and is_refused_by_redis(failure) then
    refusal_of_redis = text_of_error(failure)
  elseif not ok then
    failures[#failures + 1] = {ident, text_of_error(failure)}
  end
end

local function is_a(key, kind)
  local found = redis.call('TYPE', key).ok
  return found == kind or found == 'none'
end

local is_full = false
for _, queue in ipairs(KEYS) do
  local is_sound = is_a(queue .. ':delayed', 'zset') and is_a(queue .. ':waiting', 'list')
  if is_sound and redis.call('EXISTS', queue .. ':requeue_all_delayed_ready_jobs') == 0 then
    local room = refusal_of_redis and 0 or math.max(limit - done, 0)
    local idents = redis.call('ZRANGEBYSCORE', queue .. ':delayed', '-inf', moment, 'LIMIT', 0, room)
    is_full = is_full or #idents == room
    for _, ident in ipairs(idents) do
      if not refusal_of_redis then wake_safely(queue, ident) end
    end
  end
end
if refusal_of_redis and done == 0 then
  return {err = refusal_of_redis}
end
return {done, is_full and done > 0 and 1 or 0, failures, unknown, reindexes, ready}
