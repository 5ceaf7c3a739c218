-- verb: promote
-- from: delayed
-- to: waiting
-- what: all that are due, in one step
-- KEYS     the queues: model name and pk
-- request
--   limit     how many jobs at most
--   custom    '1' to leave the waiting lists to the caller
--   classes
-- reply
--   done   {has_more, failures, unknown, ready}
--     has_more   whether more are due
--     failures   {ident, reason}… of jobs that could not be moved: dropped if they never can
--     unknown    {queue, ident}… of jobs whose class was not given: left where they are
--     ready      {queue, ident}… of jobs that the caller has to put in the waiting list
--   or the error of Redis, if it refuses all writes for now
--
-- A job that is due but not delayed (such as a canceled one), or delayed by its code while it still runs, is moved as
-- it is: a worker will skip it. A queue is left alone while redis-limpyd-jobs 2 moves its jobs, under a lock; so is a
-- queue with keys of a wrong type.

--@include clock
--@include idents
--@include quarantine
--@include signals

local limit, classes, is_custom = tonumber(request.limit), classes_from(request.classes), request.custom
local moment = score(now())
local done, failures, unknown, ready = 0, {}, {}, {}

local refusal_of_redis

local function drop(queue, ident, reason)
  redis.call('ZREM', queue .. ':delayed', ident)
  redis.pcall('HDEL', queue .. ':_deferrals', ident)
  failures[#failures + 1] = {ident, reason}
  done = done + 1
end

local function promote(queue, ident, model, pk)
  local status, token = unpack(redis.call('HMGET', hash_key(model, pk), 'status', '_claim_token'))
  if status == STATUSES.DELAYED and not token then
    -- if the caller fails to do it, the job is found in no list, and is put in this queue
    update(model, pk, {status = STATUSES.WAITING, _queue_key = is_custom and queue or nil})
  end
  if is_custom then
    ready[#ready + 1] = {queue, ident}
    redis.call('DEL', shared_key(queue, 'reconcile_lock'))  -- a worker looks soon whether it got into a list
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
return answer('done', {has_more = is_full and done > 0, failures = failures, unknown = unknown, ready = ready})
