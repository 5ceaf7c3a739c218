-- verb: defer unresolved
-- from: waiting or delayed
-- to: the same
-- what: a job whose class this worker cannot resolve rests in its queue for a while. After too often it is dead-lettered
-- KEYS[1]  waiting list
-- request
--   ident
--   seconds   for how long
--   limit     how often at most
-- reply
--   deferred        {queue_name}: to the delayed set
--   dead lettered   {queue_name}: to the errors
--
-- Its hash is not touched, as its indexes are not known. If its new place is of a wrong type, it goes in quarantine.

--@include envelope
--@include clock
--@include flows
--@include idents
--@include quarantine

local queue = string.sub(KEYS[1], 1, -9)
local ident, seconds, limit = request.ident, tonumber(request.seconds), tonumber(request.limit)
local counts = queue .. ':_deferrals'

local function put(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' then
    set_aside(queue, ident)
  end
end

-- For its flow, a job that no worker knows has ended.
local function end_node()
  local path, pk = parse_ident(ident)
  local is_known, class = pcall(cjson.decode, path and redis.pcall('HGET', 'limpyd-jobs:classes', path))
  local of_flow = is_known and redis.pcall('HGET', class[2] .. ':' .. pk .. ':hash', '_flow')
  if type(of_flow) == 'string' then note_end_of_node(of_flow, 'unknown') end
end

local name = redis.call('HGET', queue .. ':hash', 'name') or ''
redis.call('LREM', KEYS[1], 1, ident)  -- first: a full Redis refuses to count only before a script has written something
-- If the hash of counts is of a wrong type, the job is just deferred.
local count = tonumber(redis.pcall('HINCRBY', counts, ident, 1)) or 0
if count > limit then
  redis.call('HDEL', counts, ident)
  redis.pcall('ZREM', queue .. ':delayed', ident)
  put('RPUSH', queue .. ':errors', ident)
  pcall(end_node)
  return answer('dead lettered', {queue_name = name})
end
-- A job that leaves the queue without a claim leaves its count behind.
redis.call('EXPIRE', counts, math.ceil(math.max(86400, seconds * 10)))
put('ZADD', queue .. ':delayed', score(now() + seconds * 1000000), ident)
return answer('deferred', {queue_name = name})
