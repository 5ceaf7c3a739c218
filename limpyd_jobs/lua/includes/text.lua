-- Text: values that can be decoded as UTF-8.

local CONTINUATION = '[\128-\191]'
local SEQUENCES = {
  '[\194-\223]' .. CONTINUATION,
  '\224[\160-\191]' .. CONTINUATION,
  '[\225-\236\238\239]' .. CONTINUATION .. CONTINUATION,
  '\237[\128-\159]' .. CONTINUATION,
  '\240[\144-\191]' .. CONTINUATION .. CONTINUATION,
  '[\241-\243]' .. CONTINUATION .. CONTINUATION .. CONTINUATION,
  '\244[\128-\143]' .. CONTINUATION .. CONTINUATION,
}

local function is_text(value)
  if not string.find(value, '[\128-\255]') then
    return true
  end
  for _, sequence in ipairs(SEQUENCES) do
    value = string.gsub(value, sequence, ' ')
  end
  return not string.find(value, '[\128-\255]')
end

local function next_sequence(value, position)
  for _, sequence in ipairs(SEQUENCES) do
    local _, last = string.find(value, '^' .. sequence, position)
    if last then
      return last
    end
  end
end

-- A value with each byte that is not text written as \xNN.
local function as_text(value)
  if is_text(value) then
    return value
  end
  local parts, position = {}, 1
  while position <= #value do
    local byte = string.byte(value, position)
    local last = byte < 128 and position or next_sequence(value, position)
    parts[#parts + 1] = last and string.sub(value, position, last) or string.format('\\x%02x', byte)
    position = (last or position) + 1
  end
  return table.concat(parts)
end
