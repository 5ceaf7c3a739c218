-- verb: raise counter
-- what: looks whether the counter of a model gives no pk above its highest one, or sets it to that one
-- request
--   model, repair
--   highest   pk; 0 if there is no record
-- reply
--   done   {counter: its value if it is wrong}

--@include envelope

local key = cjson.decode(request.model).name .. ':max_pk'
local counter = redis.pcall('GET', key)
local number = type(counter) == 'string' and tonumber(counter)
local highest = tonumber(request.highest)
if number and number >= highest and number + 1 < 1e18 or not counter and highest == 0 then
  return answer('done')
end
if request.repair then
  redis.call('SET', key, request.highest)
end
return answer('done', {counter = type(counter) == 'string' and counter or 'none'})
