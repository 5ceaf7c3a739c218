-- verb: read hashes
-- what: returns the fields of some hashes, without the values that are too long
-- request
--   hashes   JSON: a list of keys
--   most     how many bytes a value has at most, and four times as many all values of a hash. Instead of others, their
--            sizes are returned: of the largest ones
-- reply
--   done   {hashes: [[field, value or its size]…]…}

--@include envelope

-- No class has so many fields: see known_classes.py.
local MOST_FIELDS = 10000

local most = tonumber(request.most)

local function sizes_of(key)
  local names, sizes = redis.pcall('HKEYS', key), {}
  for i = 1, names.err and 0 or math.min(#names, MOST_FIELDS) do
    sizes[i] = {names[i], redis.call('HSTRLEN', key, names[i])}
  end
  table.sort(sizes, function(one, other) return one[2] < other[2] end)
  return sizes
end

local found = {}
for i, key in ipairs(cjson.decode(request.hashes)) do
  local left = 4 * most
  found[i] = sizes_of(key)
  for at, entry in ipairs(found[i]) do
    local field, size = unpack(entry)
    left = left - size
    if size <= most and left >= 0 then found[i][at] = {field, redis.call('HGET', key, field)} end
  end
end
return answer('done', {hashes = found})
