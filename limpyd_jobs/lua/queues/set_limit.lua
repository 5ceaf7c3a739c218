-- verb: set limit
-- what: gives a limit, or one key of it, other numbers than its class does, from the next claim on; another rate begins anew.
--       Then, in steps, the lanes that wait for it look at it again: without that, they do so in a minute
-- request
--   queue_model, limit
--   values    JSON: {concurrency, rate, most, burst, share, rest: what is to be set, as a text, or '' for what the class says}
--   audit, unaudited
--   queue     in the later steps: the pk of a queue
--   cursor    '0', or as it was in the last reply
-- reply
--   done      {text: what is set now, or '', queues: the pks of those with lanes}
--   looked    {cursor: '0' at the end}

--@include audit
--@include limits

local model, limit = model_of(request.queue_model), request.limit
local values = cjson.decode(request.values)

local function is_meant(each)
  return each == limit or string.sub(each, 1, #limit + 1) == limit .. ':'
end

-- Lets some lanes of a queue go that wait for the limit, or one of its keys: those that may not begin wait again.
local function let_some_go(queue)
  local cursor, found = unpack(redis.call('ZSCAN', queue .. ':_later', request.cursor, 'COUNT', 200))
  for i = 1, #found, 2 do
    for _, each in ipairs(limits_in(found[i])) do
      if is_meant(each) then
        if values.rate then redis.call('DEL', each .. ':rate') end
        let_lane_go(queue, found[i])
      end
    end
  end
  return answer('looked', {cursor = cursor})
end

if request.queue then return let_some_go(model.name .. ':' .. request.queue) end

local base = model.name .. ':0'  -- what is set is beside all queues
redis.call('HLEN', shared_key(base, '_limits'))  -- fails before anything is written if it is of a wrong type
write_entry(request.audit)
local text = set_words(base, limit, values)
if values.rate then redis.call('DEL', limit .. ':rate') end
local queues = {}
for _, pk in ipairs(redis.call('SMEMBERS', model.name .. ':collection')) do
  if redis.call('EXISTS', model.name .. ':' .. pk .. ':_later') == 1 then queues[#queues + 1] = pk end
end
return answer('done', {text = text, queues = queues})
