-- verb: read ends
-- what: returns the last entries of some lists, as far as they are not too much
-- request
--   lists   JSON: a list of keys
--   most    how many entries of a list
-- reply
--   done   {ends: [how many entries it has, [entry, the last one first…]]…}

--@include envelope
--@include bounded

local LARGEST = 4000000  -- bytes of the entries of a list

-- A key of a wrong type counts as empty.
local function last_of(key)
  local found, left = {}, LARGEST
  while #found < tonumber(request.most) do
    local entry = bounded(redis.pcall('LINDEX', key, -1 - #found), LONGEST_IN_LIST)
    if type(entry) ~= 'string' or #entry > left then break end
    found[#found + 1], left = entry, left - #entry
  end
  return found
end

local ends = {}
for i, key in ipairs(cjson.decode(request.lists)) do
  local size = redis.pcall('LLEN', key)
  ends[i] = {type(size) == 'number' and size or 0, last_of(key)}
end
return answer('done', {ends = ends})
