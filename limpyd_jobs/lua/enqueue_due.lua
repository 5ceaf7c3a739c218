-- verb: enqueue due
-- from: new
-- to: waiting
-- what: as add, for a schedule that is due: once for each time, as its next one is set in the same step
--
-- KEYS[1]  sorted set of the schedules that are active, by when they are due
-- ARGV[1]  schedule model
-- ARGV[2]  pk of the schedule
-- ARGV[3]  JSON: {seen: {next_run, trigger, timezone} as the caller read them; run: the time that is due, '' to pass over
--          it; following: the next one, '' for never again; score: that of it; mode, pk: see add.lua}
-- ARGV[4]  job model
-- ARGV[5]  queue model
-- ARGV[6]  identifier
-- ARGV[7]  queue name
-- ARGV[8]  priority
-- ARGV[9…] fields of a new job: field, value…
--
-- {'added', pk, reindex}      {'reserved', pk}      {'not unique', field, value, pk of its owner}
-- {'existing', pk}            {'moved', pk, reindex}
-- {'outranked', pk}           never, as the job is always placed here
-- {'passed over'}             it was not to be run, and the next time is set
-- {'not due'}                 somebody else was faster, or the schedule was changed: nothing is done

--@include adding

local model, pk, options = model_of(ARGV[1]), ARGV[2], cjson.decode(ARGV[3])

probe('ZCARD', KEYS[1])
if is_gone(model, pk) then
  redis.call('ZREM', KEYS[1], pk)
  return {'not due'}
end
local stored = redis.call('HMGET', hash_key(model, pk), 'next_run', 'trigger', 'timezone', 'paused')
if stored[4] then
  redis.call('ZREM', KEYS[1], pk)
  return {'not due'}
end
for i, value in ipairs(options.seen) do
  if stored[i] ~= value then
    return {'not due'}
  end
end

local function advance()
  local changes = {next_run = options.following ~= '' and options.following}
  if options.run ~= '' then
    changes.last_run = options.run
  end
  update(model, pk, changes)
  if changes.next_run then
    redis.call('ZADD', KEYS[1], options.score, pk)
  else
    redis.call('ZREM', KEYS[1], pk)
  end
end

if options.run == '' then
  advance()
  return {'passed over'}
end
local where = {model = model_of(ARGV[5]), name = ARGV[7], priority = ARGV[8], mode = options.mode}
local reply = add(model_of(ARGV[4]), ARGV[6], where, pairs_from(9), options.pk)
if reply[1] ~= 'reserved' and reply[1] ~= 'not unique' then
  advance()
end
return reply
