-- verb: wake
-- from: delayed
-- to: waiting
-- what: all that are due, in one step
--
-- KEYS     the queues: model name and pk
-- ARGV[1]  how many jobs at most
-- ARGV[2…] the job classes known to the caller: class path, job model…
--
-- {moved, more, failures, unknown, reindexes}
--   moved      how many went to their waiting lists
--   more       1 if more are due
--   failures   {ident, reason}… of those that were dropped
--   unknown    {queue, ident}… of classes that are not among those given: left where they are
--   reindexes  {ident, reindex}…
--
-- A job that is due but not delayed (canceled, say) is moved as it is, for a worker to skip it. A queue whose jobs
-- are being moved by redis-limpyd-jobs 2, which sets a lock, is left alone.

--@include claims

local limit, classes = tonumber(ARGV[1]), classes_from(2)
local moment = score(now())
local models = {}
local moved, failures, unknown, reindexes = 0, {}, {}, {}

local function model_of(path)
  models[path] = models[path] or cjson.decode(classes[path])
  return models[path]
end

local function drop(queue, ident, reason)
  redis.call('ZREM', queue .. ':delayed', ident)
  failures[#failures + 1] = {ident, reason}
end

local function wake(queue, ident, model, pk)
  reindex = {}
  probe('LLEN', queue .. ':waiting')
  if redis.call('HGET', hash_key(model, pk), 'status') == 'd' then
    update(model, pk, {status = 'w'})
    if #reindex > 0 then reindexes[#reindexes + 1] = {ident, reindex} end
  end
  redis.call('RPUSH', queue .. ':waiting', ident)
  redis.call('ZREM', queue .. ':delayed', ident)
  moved = moved + 1
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
  local model = model_of(path)
  if redis.call('EXISTS', hash_key(model, pk)) == 0 then
    return drop(queue, ident, 'the job does not exist')
  end
  local ok, failure = pcall(wake, queue, ident, model, pk)
  if not ok then
    set_aside(queue, ident)
    drop(queue, ident, text_of_error(failure))
  end
end

for _, queue in ipairs(KEYS) do
  if redis.call('EXISTS', queue .. ':requeue_all_delayed_ready_jobs') == 0 then
    local room = limit - moved - #failures - #unknown
    if room <= 0 then
      return {moved, 1, failures, unknown, reindexes}
    end
    -- a delayed set of a wrong type holds no jobs
    local idents = redis.pcall('ZRANGEBYSCORE', queue .. ':delayed', '-inf', moment, 'LIMIT', 0, room)
    for _, ident in ipairs(idents) do
      wake_safely(queue, ident)
    end
  end
end
return {moved, limit - moved - #failures - #unknown <= 0 and 1 or 0, failures, unknown, reindexes}
