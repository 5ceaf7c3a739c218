-- verb: set limit
-- what: gives a limit, or one key of it, other numbers than its class does, from the next claim on; another rate begins anew
-- request
--   queue_model, limit
--   values    JSON: {concurrency, rate, most, burst, share, rest: what is to be set, as a text, or '' for what the class says}
--   audit, unaudited
-- reply
--   done      {text: what is set now, or ''}

--@include audit
--@include limits

local model, limit = model_of(request.queue_model), request.limit
local base = model.name .. ':0'  -- what is set is beside all queues
redis.call('HLEN', shared_key(base, '_limits'))  -- fails before anything is written if it is of a wrong type
write_entry(request.audit)
local values = cjson.decode(request.values)
local text = set_words(base, limit, values)
if values.rate then redis.call('DEL', limit .. ':rate') end

-- Lets the lanes go that wait for the limit, or one of its keys: those that may not begin wait again.
local function let_all_go(queue)
  for _, lane in ipairs(redis.call('ZRANGE', queue .. ':_later', 0, -1)) do
    for _, each in ipairs(limits_in(lane)) do
      if each == limit or string.sub(each, 1, #limit + 1) == limit .. ':' then
        if values.rate then redis.call('DEL', each .. ':rate') end
        let_lane_go(queue, lane)
      end
    end
  end
end

for _, pk in ipairs(redis.call('SMEMBERS', model.name .. ':collection')) do
  let_all_go(model.name .. ':' .. pk)
end
return answer('done', {text = text})
