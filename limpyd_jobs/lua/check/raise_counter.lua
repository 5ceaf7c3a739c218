-- verb: raise counter
-- what: looks whether the counter of a model is below its highest pk, or raises it
-- request
--   model, repair
--   highest   pk
-- reply
--   done   {counter: if it is too low; or its value if it is not a number}

--@include envelope

local key = cjson.decode(request.model).name .. ':max_pk'
local counter = redis.pcall('GET', key)
local number = type(counter) == 'string' and tonumber(counter)
if number and number >= tonumber(request.highest) then
  return answer('done')
end
if request.repair then
  redis.call('SET', key, request.highest)
end
return answer('done', {counter = type(counter) == 'string' and counter or 'none'})
