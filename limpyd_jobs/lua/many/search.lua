-- verb: search
-- what: looks at some jobs of a class, and tells which meet some conditions
-- request
--   model, pks, first, last, within, conditions, standing
--   names   JSON: the fields to return of the jobs that meet them; none to count only. `queue` is a queue's name
--   most    how many to return
--   by      the field whose values to count; `error`, `fingerprint` and `last_fingerprint` are of the last error of a job
--   errors  JSON, for these: [{of_job, of_class, errors}…], as the test `error` in includes/finding.lua has them
-- reply
--   done   {number: how many meet them, found: [pk, [value or false…]]…, counts: {value: number},
--          looked: at how many, seen: the last pk}

--@include finding
--@include bounded

local names, most = request.names and cjson.decode(request.names), tonumber(request.most) or math.huge
local errors = request.errors and cjson.decode(request.errors)
local by, shown = request.by and position_of(request.by), {}
for i, name in ipairs(names or {}) do shown[i] = position_of(name) end
local of_queue = positions._queue_key

-- How many bytes are returned, about: a step that has more ends. Values that are counted are cut to so many.
local LARGEST, LONGEST_VALUE = 1000000, 1000

-- The beginning of a long text, without half a character at its end.
local function cut(text)
  if #text <= LONGEST_VALUE then return text end
  return (string.gsub(string.sub(text, 1, LONGEST_VALUE), '[\192-\255]?[\128-\191]*$', '')) .. '…'
end

local number, found, counts, size = 0, {}, {}, 0

-- The value of the last error that is recorded of a job; without a fingerprint, its type.
local function of_last_error(pk)
  local type, fingerprint = last_error_of(pk, errors)
  return request.by ~= 'error' and fingerprint or type
end

local function value_of(pk, values)
  if errors then return of_last_error(pk) end
  return request.by == 'queue' and name_of_queue(queue_of(pk, values)) or values[by]
end

local looked, seen = for_each_found(function(pk, values)
  number = number + 1
  if by then
    local value = cut(value_of(pk, values) or '')
    if not counts[value] then size = size + #value end
    counts[value] = (counts[value] or 0) + 1
  end
  if names then
    local row = {}
    for i, name in ipairs(names) do
      local value = shown[i] == of_queue and queue_of(pk, values) or values[shown[i]]
      value = name == 'queue' and name_of_queue(value) or name ~= 'queue' and value or false
      row[i] = bounded(value, name == 'message' and LARGEST or LONGEST_IN_LIST)
      size = size + #(row[i] or '')
    end
    found[#found + 1] = {pk, row}
  end
  return number >= most or size > LARGEST
end)
return answer('done', {number = number, found = found, counts = counts, looked = looked, seen = seen})
