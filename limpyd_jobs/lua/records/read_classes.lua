-- verb: read classes
-- what: returns what processes wrote of job classes, and of models, as far as it is not too much
-- KEYS[1]  hash of the classes
-- request
--   most       how many are returned
--   longest    how many bytes one has at most
-- reply
--   done   {classes: [field, text]…, left_out: how many are not returned}

--@include envelope

local LARGEST = 8000000  -- bytes of all of them

local found, size = {}, 0
local names = redis.pcall('HKEYS', KEYS[1])
if names.err then return answer('done', {classes = found, left_out = 0}) end
table.sort(names)
for _, name in ipairs(names) do
  local own = #name + redis.call('HSTRLEN', KEYS[1], name)
  if own <= tonumber(request.longest) and size + own <= LARGEST then
    size = size + own
    found[#found + 1] = {name, redis.call('HGET', KEYS[1], name)}
  end
  if #found == tonumber(request.most) then break end
end
return answer('done', {classes = found, left_out = #names - #found})
