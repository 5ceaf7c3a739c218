-- verb: search
-- what: looks at some jobs of a class, and tells which meet some conditions
-- request
--   model, pks, first, last, within, conditions
--   names   JSON: the fields to return of those that meet them; none to count them only. `queue` is a queue's name
--   most    how many to return
--   by      the field whose values to count
-- reply
--   done   {number: how many meet them, found: [pk, [value or false…]]…, counts: {value: number},
--          looked: at how many, seen: the last pk}

--@include finding

local names, most = request.names and cjson.decode(request.names), tonumber(request.most) or math.huge
local by, shown = request.by and position_of(request.by), {}
for i, name in ipairs(names or {}) do shown[i] = position_of(name) end

local number, found, counts = 0, {}, {}

local looked, seen = for_each_found(function(pk, values)
  number = number + 1
  if by then
    local value = request.by == 'queue' and name_of_queue(values[by]) or values[by] or ''
    counts[value] = (counts[value] or 0) + 1
  end
  if names then
    local row = {}
    for i, name in ipairs(names) do
      local value = values[shown[i]]
      row[i] = name == 'queue' and name_of_queue(value) or name ~= 'queue' and value or false
    end
    found[#found + 1] = {pk, row}
  end
  return number >= most
end)
return answer('done', {number = number, found = found, counts = counts, looked = looked, seen = seen})
